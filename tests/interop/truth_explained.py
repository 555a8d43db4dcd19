"""Where doctor_truth.py sees something else than doctor predicts, and doctor is right all the same: few, each with its reason."""

# (part of the situation's name, the column's beginning or None, what doctor predicts, what is seen, why that is right)
ROWS = [
    ("two moments exchanged", None, "resumes", "resumes-differently", "moments of one shape were exchanged: nothing in the file tells, and torch does not see it either"),
    ("the same shape in another order, unnamed", None, "resumes", "resumes-differently", "the file keeps no names of the optimizer's parameters: that the program's order is another one shows nowhere"),
    ("before the first step", None, "resumes-differently", "resumes", "nothing is lost, since no step was taken; but a file without state is the same when all of it was lost, and doctor warns"),
    ("one frozen in its module", None, "resumes-differently", "resumes", "that it was frozen shows nowhere: doctor warns, and says that it is right for frozen ones"),
    ("one frozen in its module", "ckpt", "fails-at-load", "resumes", "the same: the program binds no moments for it"),
    ("a parameter that was frozen for a time", None, "resumes-differently", "resumes", "that it was frozen shows nowhere: doctor warns, and says that it is right for those that had no gradient"),
    ("scale is 9.094947017729282e-13", "ckpt", "resumes-differently", "resumes", "the program computes in float32, where no gradient is too small for it; in float16, for which a scaler is, most are"),
    ("frozen among the optimizer's", "cpp", "resumes", "resumes-differently", "the program in C++ freezes nothing: whether one does shows nowhere, and doctor takes it to be the one that saved"),
    ("prefix ", None, "resumes", "fails-at-load", "the program that saved it has the wrapper too; for one without, the finding prefix says what to strip"),
    ("initial_lr missing", "new", "resumes", "fails-at-load", "only a scheduler that is constructed after the load, with last_epoch, fails: the finding says so; one constructed before goes on"),
    ("as net, optim, a scaler {}", None, "resumes-differently", "fails-at-load", "an empty dict named amp may be anything: only a scaler's entries, or its usual names, tell one"),
    ("averaged weights, for a program without", "lightning", "resumes", "resumes-differently", "doctor takes the program to be the one that saved: it has the callback"),
    ("two optimizers, one of them saved", "lightning", "resumes", "resumes-differently", "the file cannot tell a forgotten optimizer from parameters that were not trained"),
    ("no custom_checkpoint_0.pkl", "accelerate", "resumes", "fails-at-load", "what a program registers for checkpoints stands nowhere in the folder"),
    ("as the weights alone", None, "weights-only", "resumes-differently", "a program that resumes starts its optimizer anew; the file is not meant for that, and doctor says so"),
    ("as the weights alone", "ckpt", "weights-only", "fails-at-load", "the program here binds moments too; one that binds the weights alone gets them"),
    (", the module alone", "cpp", "weights-only", "resumes-differently", "the same: a program in C++ that resumes starts its optimizer anew"),
    ("an id twice, places of one shape", "cpp", "unknown", "resumes-differently", "what libtorch makes of an id that stands twice was not looked into: doctor says that it does not know"),
    ("as two models, two optimizers", "ckpt", "unknown", "fails-at-load", "a restore refuses to guess which model is meant; a map can say it"),
    ("as the optimizer alone", "ckpt", "unknown", "fails-at-load", "without a model the order needs names, and a program that binds the optimizer alone resumes with them"),
]

# What no machine without a GPU can show, or no option of doctor asks.
NOT_RUN = [
    ("cpp", "step on the cpu, parameters on a GPU, a program in C++ that calls at::_fused_adamw_ itself", "no stand-in for a GPU lets C++ step; torch::optim has no fused"),
    ("cpp", "moments on another device than the parameters", "no stand-in for a GPU lets C++ step"),
    ("new", "fused=True set in the groups after the load, step on the cpu (row 5)", "the kernel of CUDA refuses it; and doctor is not told what a program does after the load"),
]


def explained(row, outcome):
    for name, column, predicted, seen, why in ROWS:
        if name in row.name and row.column.startswith(column or "") and (predicted, seen) == (outcome, row.seen["outcome"]):
            return why
    return None
