/* inspect/resume.c - how the program that wrote a checkpoint goes on from it, to paste. */
#include "cli/inspect/show.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool show_plain_path(const char *path)
{
    uint32_t c;
    for (size_t left = strlen(path), n; left > 0; left -= n, path += n) {
        n = json_decode(path, left, &c);
        if (n == 0 || c < 0x20 || c == 0x7f || strchr("'\"\\$`!", *path))
            return false;
    }
    return true;
}

/* Does some tensor's tag name a GPU? */
static bool has_gpu(const ckpt_reader *reader)
{
    for (size_t i = 0; i < ckpt_reader_tensor_count(reader); i++) { /* whatever is selected */
        const char *tag = ckpt_reader_tensor(reader, i)->device.data;
        if (tag && strncmp(tag, "cuda", 4) == 0)
            return true;
    }
    return false;
}

/* One {word} of the producer's way to go on. */
static void put_word(FILE *f, const show_picture *p, const char *word, size_t size, const char *path, int length)
{
    ckpt_str file = p->summary.resume_file;
    bool refuses = ckpt_report_count_code(p->doctor, "weights-only-refused") > 0;
    if (size == 4 && memcmp(word, "path", size) == 0) {
        fprintf(f, "%.*s", length, path);
        if (file.data)
            fprintf(f, "/%s", file.data);
    } else if (size == 4 && memcmp(word, "load", size) == 0) {
        fputs(refuses ? ", weights_only=False" : "", f);
    } else if (size == 6 && memcmp(word, "device", size) == 0) {
        fputs(has_gpu(p->reader) ? "cuda:0" : "cpu", f);
    } else {
        fprintf(f, "{%.*s}", (int)size, word);
    }
}

/* Without its last name: the bytes of path[0, n) up to it; 0: there is nothing before it. */
static int above(const char *path, int n)
{
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

/* The parts of a run's ranks, RUN/rank-N/step-N each: the run resumes, and every rank its own part. */
static char *resume_ranks(const show_picture *p)
{
    int n = above(p->path, above(p->path, (int)strlen(p->path)));
    char *text = NULL;
    if (asprintf(
            &text,
            "ckpt_run_open(\"%.*s\", state, &options, &run, &err);\nckpt_run_resume(run, NULL, &done, report, &err)",
            n ? n : 1, n ? p->path : ".") < 0)
        return NULL;
    return text;
}

/* Parts of several directories are what this library alone restores together. */
static char *resume_together(const show_picture *p)
{
    const cli *c = &p->o->cli;
    char *text = NULL;
    size_t size = 0;
    for (int i = 0; i < c->also_count; i++)
        if (!show_plain_path(c->also[i]))
            return NULL;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return NULL;
    fputs("options.also = (const char *const[]){", f);
    for (int i = 0; i < c->also_count; i++)
        fprintf(f, "%s\"%s\"", i ? ", " : "", c->also[i]);
    fprintf(
        f,
        "}; options.also_count = %d;\noptions.map_location = \"%s\"; ckpt_restore(state, \"%s\", &options, report, &err)",
        c->also_count, has_gpu(p->reader) ? "cuda:0" : "cpu", p->path);
    if (fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

static bool lacks_pieces(const ckpt_report *report)
{
    return report && (ckpt_report_find(report, "pieces-missing", NULL) || ckpt_report_find(report, "rank-part", NULL));
}

char *show_resume_command(const show_picture *p)
{
    const char *path = p->path, *slash = strrchr(path, '/'), *at = p->summary.resume.data;
    int length = (int)strlen(path);
    char *text = NULL;
    size_t size = 0;
    ckpt_str file = p->summary.resume_file;
    if (!at || !show_plain_path(path) || (file.data && !show_plain_path(file.data)))
        return NULL;
    if (lacks_pieces(ckpt_reader_findings(p->reader)) || lacks_pieces(p->doctor))
        return NULL; /* loaders leave the other elements as they are in memory */
    if (ckpt_report_find(ckpt_reader_findings(p->reader), "ranks-joined", NULL))
        return resume_ranks(p);
    if (p->o->cli.also_count > 0)
        return resume_together(p);
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (!p->directory && strcmp(ckpt_reader_format(p->reader), "hf") == 0) {
        length = slash ? (int)(slash - path) : 1; /* an index stands for its directory */
        path = slash ? path : ".";
    }
    FILE *f = open_memstream(&text, &size);
    for (const char *open; f && (open = strchr(at, '{'));) {
        size_t n = strcspn(open + 1, "}");
        fwrite(at, 1, (size_t)(open - at), f);
        put_word(f, p, open + 1, n, path, length);
        at = open[1 + n] ? open + n + 2 : open + 1 + n;
    }
    if (f)
        fputs(at, f);
    if (f && fclose(f) == 0)
        return text;
    free(text);
    return NULL;
}

bool show_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* What would be odd at a resume by the producer's own loader. */
void show_ask_doctor(show_picture *p)
{
    ckpt_doctor_result result = CKPT_DOCTOR_RESULT_INIT;
    ckpt_doctor_options options = CKPT_DOCTOR_OPTIONS_INIT;
    options.summary = &p->summary;
    p->doctor = ckpt_report_new();
    if (p->doctor && ckpt_doctor(p->reader, &options, &result, p->doctor, NULL) < 0)
        ckpt_report_clear(p->doctor);
    else
        p->verdict = ckpt_outcome_name(result.outcome);
    ckpt_doctor_result_clear(&result);
}

char *show_resume_of(const command_line *o, const char *path)
{
    ckpt_reader *reader = NULL;
    char *text = NULL;
    show_picture p;
    memset(&p, 0, sizeof p);
    p.summary.struct_size = sizeof p.summary;
    p.o = o;
    p.path = path;
    p.directory = show_is_directory(path);
    if (ckpt_reader_open(path, NULL, &reader, NULL) < 0)
        return NULL;
    p.reader = reader;
    if (ckpt_summarize(reader, &p.summary, NULL) == CKPT_OK) {
        show_ask_doctor(&p);
        text = show_resume_command(&p);
    }
    ckpt_report_free(p.doctor);
    ckpt_summary_clear(&p.summary);
    ckpt_reader_close(reader);
    return text;
}
