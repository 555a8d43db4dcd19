/* compare_losses.c - do the losses of a run follow those that were recorded?
 *
 *     compare_losses RECORDED RUN FIRST LAST
 *
 * Both files have lines "step N loss D (HEX)[ scale S[ skipped]]". The first recorded step must agree within FIRST
 * (relative), every later one within LAST; scale and "skipped" must be equal. Exit status: 0 they agree, 1 they do not,
 * 2 trouble. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    long step;
    double loss;
    char rest[64];
} line;

static int read_line(FILE *file, line *l)
{
    char text[256], hex[64];
    if (!fgets(text, sizeof text, file))
        return 0;
    l->rest[0] = '\0';
    if (sscanf(text, "step %ld loss %*s (%63[^)]) %63[^\n]", &l->step, hex, l->rest) < 2) {
        fprintf(stderr, "compare_losses: not a line of losses: %s", text);
        exit(2);
    }
    l->loss = strtod(hex, NULL);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: compare_losses RECORDED RUN FIRST LAST\n");
        return 2;
    }
    FILE *recorded = fopen(argv[1], "r"), *run = fopen(argv[2], "r");
    double first = strtod(argv[3], NULL), rest = strtod(argv[4], NULL), worst = 0.0;
    int count = 0, agree = 1;
    line a, b;
    if (!recorded || !run) {
        fprintf(stderr, "compare_losses: %s or %s cannot be read\n", argv[1], argv[2]);
        return 2;
    }
    for (; read_line(recorded, &a); count++) {
        if (!read_line(run, &b) || a.step != b.step) {
            fprintf(stderr, "compare_losses: the run has no step %ld there\n", a.step);
            return 2;
        }
        double off = fabs(a.loss - b.loss) / fabs(a.loss);
        int ok = off <= (count ? rest : first) && strcmp(a.rest, b.rest) == 0;
        if (!ok)
            printf("step %ld: %.9g recorded, %.9g here, off by %.3g; \"%s\" and \"%s\"\n", a.step, a.loss, b.loss, off,
                   a.rest, b.rest);
        agree = agree && ok;
        worst = off > worst ? off : worst;
    }
    fclose(recorded);
    fclose(run);
    if (count < 2)
        return fprintf(stderr, "compare_losses: nothing to compare\n"), 2;
    printf("%d steps, off by %.3g at most: they %s\n", count, worst, agree ? "agree" : "do not agree");
    return agree ? 0 : 1;
}
