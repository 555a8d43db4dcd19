/* inspect/show.c - what is this, who wrote it, how far is it, and how to go on: gathers it. */
#include "cli/inspect/show.h"
#include <stdlib.h>
#include <string.h>
#include "cli/inspect/folder.h"
#include "cli/inspect/show_line.h"
#include "cli/report/report.h"

/* Tags come from files, so their number is bounded: what goes past it is "(others)". */
static bool count_in(show_table *t, const char *name, size_t size, uint64_t nbytes)
{
    enum { ROWS_MAX = 256 };
    const size_t most = sizeof t->rows->name - 1, n = strnlen(name, size < most ? size : most);
    size_t i = 0;
    while (i < t->count && (memcmp(t->rows[i].name, name, n) != 0 || t->rows[i].name[n]))
        i++;
    if (i == t->count && i >= ROWS_MAX) {
        strcpy(t->rows[i - 1].name, "(others)");
        i--;
    } else if (i == t->count) {
        show_row *rows = realloc(t->rows, (i + 1) * sizeof *rows);
        if (!rows)
            return false;
        t->rows = rows;
        t->count++;
        memset(&rows[i], 0, sizeof rows[i]);
        memcpy(rows[i].name, name, n);
    }
    t->rows[i].count++;
    t->rows[i].nbytes += nbytes;
    return true;
}

static bool count_tensors(show_picture *p)
{
    bool ok = true;
    for (size_t i = 0; ok && i < ckpt_reader_tensor_count(p->reader); i++) {
        const ckpt_tensor_info *t = ckpt_reader_tensor(p->reader, i);
        const char *role = ckpt_role_name(t->role), *dtype = ckpt_dtype_name(t->dtype);
        if (!cli_selected(&p->o->cli, t))
            continue;
        p->tensors++;
        p->nbytes += t->nbytes;
        ok =
            count_in(&p->roles, role, strlen(role), t->nbytes) &&
            count_in(&p->dtypes, dtype, strlen(dtype), t->nbytes) &&
            count_in(&p->devices, t->device.data ? t->device.data : "", t->device.data ? t->device.size : 0, t->nbytes);
    }
    return ok;
}

/* One of several PATHs. */
static int show_in_line(const show_picture *p)
{
    const show_line own = {.path = p->path,
                           .format = ckpt_reader_format(p->reader),
                           .producer = p->summary.producer,
                           .verdict = p->verdict,
                           .step = p->summary.step,
                           .epoch = p->summary.epoch,
                           .epoch_exact = p->summary.epoch_exact,
                           .parameters = p->params.tensors ? p->params.count : 0,
                           .nbytes = ckpt_reader_file_size(p->reader)};
    return show_line_add(&own) ? CLI_YES : cli_fail(&p->o->cli, "no-memory", "out of memory");
}

/* All is counted. */
static int answer(show_picture *p)
{
    const command_line *o = p->o;
    int status = CLI_YES;
    show_ask_doctor(p);
    p->by = o->by ? show_by_new(o, p->reader) : NULL;
    if (o->by && !p->by)
        return cli_fail(&o->cli, "no-memory", "out of memory");
    if (o->report) {
        char *resume = show_resume_command(p);
        status = report_show(o, p->reader, &p->summary, p->doctor, resume);
        free(resume);
    }
    if (status == CLI_YES && show_lines_wanted(o))
        status = show_in_line(p);
    else if (status == CLI_YES && o->cli.json)
        show_json(p);
    else if (status == CLI_YES)
        show_text(p);
    return status;
}

int inspect_show(const command_line *o)
{
    ckpt_error err = CKPT_ERROR_INIT;
    show_picture p;
    memset(&p, 0, sizeof p);
    p.summary.struct_size = sizeof p.summary;
    p.o = o;
    p.path = o->paths[0];
    p.directory = o->cli.also_count > 0 || show_is_directory(p.path);
    ckpt_reader_options options = {.struct_size = sizeof options,
                                   .format = o->cli.from,
                                   .also = (const char *const *)o->cli.also,
                                   .also_count = (size_t)o->cli.also_count};
    ckpt_reader *reader = NULL;
    ckpt_reader_open(p.path, &options, &reader, &err);
    const char *empty = reader && ckpt_reader_tensor_count(reader) == 0 ? ckpt_reader_format(reader) : "";
    int listed = folder_holds_several(o, reader ? NULL : &err, empty) ? folder_show(o) : -1;
    if (listed >= 0) {
        ckpt_reader_close(reader);
        return listed;
    }
    if (!reader)
        return cli_fail_error(&o->cli, &err);
    p.reader = reader;
    int status = cli_selection_finds(&o->cli, (const ckpt_reader *const *)&reader, 1);
    if (status >= 0) {
        ckpt_reader_close(reader);
        return status;
    }
    status = CLI_YES;
    if (ckpt_summarize(reader, &p.summary, &err) < 0) {
        status = cli_fail_error(&o->cli, &err);
    } else if (!count_tensors(&p) || !show_count_params(&o->cli, reader, &p.params) ||
               !show_count_files(reader, &p.files)) {
        status = cli_fail(&o->cli, "no-memory", "out of memory");
    } else {
        status = answer(&p);
    }
    show_by_free(p.by);
    free(p.files.rows);
    free(p.roles.rows);
    free(p.devices.rows);
    free(p.dtypes.rows);
    ckpt_report_free(p.doctor);
    ckpt_summary_clear(&p.summary);
    ckpt_reader_close(reader);
    return status;
}
