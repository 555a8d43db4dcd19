/* cli/out/file.h - the one file that a command of ckpt-inspect writes: the one that was asked for. */
#ifndef CKPT_CLI_OUT_FILE_H
#define CKPT_CLI_OUT_FILE_H
#include "cli/out/cli.h"

/* head and data to path, which appears whole: a temporary beside it (mode 0600 until it is whole) is renamed. A symbolic link
 * stays, and what it names is replaced. What is no regular file (a pipe, /dev/stdout; "-") is written to directly. Without `replace` a file of that name stays, also one that came meanwhile. CLI_YES,
 * else the exit status, the error said. */
int output_write(const cli *c, const char *path, bool replace, const char *head, size_t head_size, const char *data,
                 size_t size);

/* The same, piece by piece. */
typedef struct output_file {
    const cli *cli;
    const char *path;
    char *temporary, *target; /* owned; NULL: what is no regular file is written to as it is */
    int fd, why;              /* why: the errno of the first failure, 0 without one */
    bool replace;
} output_file;
/* CLI_YES, else the exit status, the error said: nothing is left to close. */
int output_open(output_file *out, const cli *c, const char *path, bool replace);
/* False once a write failed, or a signal came: output_close says it. */
bool output_put(output_file *out, const char *data, size_t size);
/* The file gets its name, where all was written and `keep` is set; else the temporary is removed. CLI_YES, else the exit status:
 * with `keep` the error is said, without it the caller has said one. */
int output_close(output_file *out, bool keep);

/* The error that it is there, and --force was not given. */
int output_refuse(const cli *c, const char *path);
/* Is a regular file there, also by way of a link? Standard output, by whatever name, is none. */
bool output_is_file(const char *path);
/* Is path standard output, by whatever name? */
bool output_is_stdout(const char *path);
/* Are both names the same file? inside (size bytes; NULL: path itself) is relative to path. False where one is not there. */
bool output_is_same(const char *output, const char *path, const char *inside, size_t size);
/* Is output a file that a tensor of the checkpoint lies in? */
bool output_is_part(const char *output, const ckpt_reader *reader);
/* Is output there, and in the directory or a folder of it? False where that is no directory. */
bool output_is_within(const char *output, const char *directory);
#endif
