"""Where doctor_truth.py sees something else than doctor predicts, and doctor is right all the same: few, each with its reason."""

# (part of the situation's name, column or None, a text that the doctor's arguments hold, what it predicts, why that is right)
ROWS = [
    ("two moments exchanged", None, "", "resumes", "moments of one shape were exchanged: nothing in the file tells, and torch does not see it either"),
    ("the same shape in another order, unnamed", None, "", "resumes", "the file keeps no names of the optimizer's parameters: that the program's order is another one shows nowhere"),
    ("before the first step", None, "", "resumes-differently", "nothing is lost, since no step was taken; but a file without state is the same when all of it was lost, and doctor warns"),
    ("prefix ", None, "", "resumes", "the program that saved it has the wrapper too; for one without, the finding prefix says what to strip"),
    ("initial_lr missing", "new", "", "resumes", "only a scheduler that is constructed after the load, with last_epoch, fails: the finding says so; one constructed before goes on"),
    ("as net, optim, a scaler {}", None, "", "resumes-differently", "an empty dict named amp may be anything: only a scaler's entries, or its usual names, tell one"),
    ("averaged weights, for a program without", None, "", "resumes", "doctor takes the program to be the one that saved: it has the callback"),
    ("two optimizers, one of them saved", None, "", "resumes", "the file cannot tell a forgotten optimizer from parameters that were not trained"),
    ("no custom_checkpoint_0.pkl", None, "", "resumes", "what a program registers for checkpoints stands nowhere in the folder"),
    ("HF Trainer: a group less", None, "", "resumes", "a program may hand the Trainer an optimizer of its own, with as many groups as it likes"),
]

# What no machine without a GPU can show, and no option of doctor asks.
NOT_RUN = [
    ("fused=True set in the groups after the load, step on the cpu (row 5)", "the kernel of CUDA refuses it; and doctor is not told what a program does after the load"),
]


def explained(row, outcome):
    for name, column, argument, predicted, why in ROWS:
        if name in row.name and column in (None, row.column) and argument in " ".join(row.doctor) and predicted == outcome:
            return why
    return None
