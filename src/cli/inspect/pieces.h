/* cli/inspect/pieces.h - list --pieces: where the pieces of a tensor lie. */
#ifndef CKPT_CLI_INSPECT_PIECES_H
#define CKPT_CLI_INSPECT_PIECES_H
#include "cli/out/cli.h"

/* The tensor whose pieces are wanted. Borrowed. */
typedef struct piece_row {
    const ckpt_reader *reader;
    size_t tensor;
} piece_row;

/* Asks for one piece, so that memory that is short is an error before anything is printed. -1: go on, else the exit status, the
 * error said. */
int pieces_ready(const cli *c, const ckpt_reader *reader);
/* An array with an object a piece. */
void pieces_json(json_out *j, const char *key, const piece_row *row);
/* A line a piece. */
void pieces_text(const piece_row *row);
#endif
