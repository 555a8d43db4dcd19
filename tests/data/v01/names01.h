/* names01.h - what ckpt 0.1.0 called the constants that make_v01.c and frozen.h use. To build make_v01.c against 0.1.0:
 * cc -include tests/data/v01/names01.h ... (README). */
#define CKPT_OP_MIN CKPT_MIN
#define CKPT_OP_MAX CKPT_MAX
#define CKPT_OP_SUM CKPT_SUM
#define CKPT_ROLE_PARAM CKPT_PARAM
#define CKPT_ROLE_BUFFER CKPT_BUFFER
#define CKPT_ROLE_EXP_AVG CKPT_EXP_AVG
#define CKPT_ROLE_EXP_AVG_SQ CKPT_EXP_AVG_SQ
#define CKPT_ROLE_EMA CKPT_EMA
#define CKPT_ROLE_STEP CKPT_STEP
#define CKPT_ROLE_OTHER CKPT_OTHER
