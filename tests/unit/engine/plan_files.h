/* engine/plan_files.h - the source of a case of plan_cases.h in files: its storages as they are, deflated, or in memory. */
#ifndef PLAN_FILES_H
#define PLAN_FILES_H
#include "codec/crc32.h"
#include "io/source.h"
#include "plan_cases.h"
#include "../deflated.h"
#include "../scratch.h"

enum { FILES = 2 };

static ckpt__source *opened;

/* Writes the storages into files, some with a CRC; where one is to be harmed a byte of it is changed. Returns the harmed one. */
static uint32_t write_files(bool harms)
{
    static unsigned char coded[ROOM * 2], copies[STORAGES][ROOM];
    uint32_t victim = UINT32_MAX;
    char name[] = "pull.0";
    FILE *files[FILES];
    for (int f = 0; f < FILES; f++) {
        name[5] = (char)('0' + f);
        ck_assert_ptr_nonnull(files[f] = fopen(name, "w"));
    }
    for (uint32_t i = 0; i < STORAGES; i++) {
        ckpt__extent *e = &source->index->storages[i].extent;
        unsigned char *bytes = copies[i];
        e->size = source->used[i];
        e->file = (uint32_t)draw(FILES);
        FILE *f = files[e->file];
        size_t pad = draw(40);
        ck_assert_uint_eq(fwrite("0123456789012345678901234567890123456789", 1, pad, f), pad);
        e->offset = (uint64_t)ftell(f);
        e->has_crc = harms || chance(70);
        memcpy(bytes, source->bytes[i], (size_t)e->size);
        e->crc = ckpt__crc32(0, bytes, (size_t)e->size);
        if (harms && victim == UINT32_MAX && e->size && chance(50)) {
            victim = i;
            bytes[draw(e->size)] ^= 1u << draw(8);
        }
        e->length = e->size;
        unsigned kind = (unsigned)draw(4);
        if (kind == 0) {
            e->memory = bytes;
            continue;
        }
        e->coding = kind == 1 ? CKPT__DEFLATE : CKPT__STORED;
        if (kind == 1)
            e->length = deflated(bytes, (size_t)e->size, coded, sizeof coded);
        else
            memcpy(coded, bytes, (size_t)e->size);
        ck_assert_uint_eq(fwrite(coded, 1, (size_t)e->length, f), e->length);
    }
    for (int f = 0; f < FILES; f++)
        ck_assert_int_eq(fclose(files[f]), 0);
    uint32_t numbers[FILES];
    ck_assert_int_eq(ckpt__source_open(".", &opened, &err), CKPT_OK);
    for (int f = 0; f < FILES; f++) {
        name[5] = (char)('0' + f);
        ck_assert_int_eq(ckpt__source_add(opened, name, &numbers[f], &err), CKPT_OK);
    }
    for (uint32_t i = 0; i < STORAGES; i++)
        source->index->storages[i].extent.file = numbers[source->index->storages[i].extent.file];
    return victim;
}
#endif
