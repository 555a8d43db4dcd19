/* How much host memory is to be had: the kernel's texts, and the control groups' files in a made-up tree. */
#define SCRATCH_ON_DISK
#include "io/memory.h"
#include "io/store.h"

#include "../scratch.h"
#include "../runner.h"

#define MIB (1ull << 20)

START_TEST(the_host_says_what_is_available)
{
    ck_assert_uint_eq(ckpt__memory_of_host("MemTotal:       100 kB\nMemAvailable:    64 kB\nBuffers: 1 kB\n"),
                      64 * 1024);
    ck_assert_uint_eq(ckpt__memory_of_host("MemTotal: 100 kB\nMemFree: 64 kB\n"), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_host("NotMemAvailable: 3 kB\nMemAvailableToo: 4 kB"), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_host("MemAvailable:"), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_host("MemAvailable: many kB"), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_host("MemAvailable: 18446744073709551615 kB"), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_host("MemAvailable: 18446744073709551616 kB"), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_host(""), UINT64_MAX);
}
END_TEST

START_TEST(a_group_leaves_its_limit_less_what_cannot_be_had_back)
{
    const char *stat =
        "anon 5\nfile 60\ninactive_file 10\nactive_file 20\ntotal_inactive_file 1\ntotal_active_file 2\n";
    ck_assert_uint_eq(ckpt__memory_of_group("100\n", "70\n", NULL, ""), 30);
    ck_assert_uint_eq(ckpt__memory_of_group("100\n", "70\n", stat, ""), 50);
    ck_assert_uint_eq(ckpt__memory_of_group("100\n", "70\n", stat, "total_"), 32);
    ck_assert_uint_eq(ckpt__memory_of_group("100\n", "15\n", stat, ""), 100);
    ck_assert_uint_eq(ckpt__memory_of_group("100\n", "170\n", stat, ""), 0);
    ck_assert_uint_eq(ckpt__memory_of_group("100\n", NULL, NULL, ""), 100);
    ck_assert_uint_eq(ckpt__memory_of_group("max\n", "70\n", stat, ""), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_group(NULL, "70\n", stat, ""), UINT64_MAX);
    ck_assert_uint_eq(ckpt__memory_of_group("0\n", "0\n", "", ""), 0);
}
END_TEST

START_TEST(a_group_is_found_by_its_controller)
{
    char path[16];
    const char *text = "12:cpu,cpuacct:/a\n4:hugetlb,memory:/b/c\n3:memoryx:/d\n0::/e\n";
    ck_assert(ckpt__memory_group_path(text, "memory", path, sizeof path));
    ck_assert_str_eq(path, "/b/c");
    ck_assert(ckpt__memory_group_path(text, "", path, sizeof path));
    ck_assert_str_eq(path, "/e");
    ck_assert(ckpt__memory_group_path(text, "cpu", path, sizeof path));
    ck_assert_str_eq(path, "/a");
    ck_assert(!ckpt__memory_group_path("3:memoryx:/d\n4:name=memory:/f\n", "memory", path, sizeof path));
    ck_assert(!ckpt__memory_group_path("0::/a-name-too-long-for-it\n", "", path, sizeof path));
    ck_assert(ckpt__memory_group_path("0::/no-newline", "", path, sizeof path));
    ck_assert_str_eq(path, "/no-newline");
    ck_assert(!ckpt__memory_group_path("", "", path, sizeof path));
    ck_assert(!ckpt__memory_group_path("nonsense\n:\n::", "memory", path, sizeof path));
}
END_TEST

static void make_tree(const char *const *directories)
{
    for (; *directories; directories++)
        ck_assert_int_eq(mkdir(*directories, 0777), 0);
}

START_TEST(the_least_of_all_groups_above_counts)
{
    static const char *const tree[] = {"proc", "proc/self", "cg", "cg/a", "cg/a/b", NULL};
    make_tree(tree);
    put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 1024 * MIB);
    put("proc/self/cgroup", "0::/a/b\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 1024 * MIB);
    put("cg/a/b/memory.max", "max\n");
    put("cg/a/b/memory.current", "1048576\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 1024 * MIB);
    put("cg/a/memory.max", "104857600\n");
    put("cg/a/memory.current", "52428800\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 50 * MIB);
    put("cg/a/memory.stat", "inactive_file 10485760\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 60 * MIB);
    put("cg/a/b/memory.high", "31457280\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 29 * MIB);
    put("cg/memory.max", "8388608\n"); /* the mount itself, which is all that a container may see */
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 8 * MIB);
    put("proc/self/cgroup", "0::/not/seen/from/here\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 8 * MIB);
    put("proc/meminfo", "MemAvailable: 1024 kB\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), MIB);
    ck_assert_uint_eq(ckpt__memory_below("nowhere", "cg"), UINT64_MAX);
}
END_TEST

START_TEST(groups_of_version_1_count_too)
{
    static const char *const tree[] = {"proc", "proc/self", "cg", "cg/memory", "cg/memory/job", NULL};
    make_tree(tree);
    put("proc/meminfo", "MemAvailable: 1048576 kB\n");
    put("proc/self/cgroup", "5:cpu:/\n4:memory:/job\n0::/\n");
    put("cg/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("cg/memory/memory.usage_in_bytes", "1048576\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 1024 * MIB);
    put("cg/memory/job/memory.limit_in_bytes", "16777216\n");
    put("cg/memory/job/memory.usage_in_bytes", "10485760\n");
    put("cg/memory/job/memory.stat", "inactive_file 7\ntotal_inactive_file 2097152\ntotal_active_file 2097152\n");
    ck_assert_uint_eq(ckpt__memory_below("proc", "cg"), 9 * MIB);
}
END_TEST

START_TEST(this_machine_has_memory)
{
    uint64_t bytes = ckpt__memory_available();
    ck_assert_uint_gt(bytes, MIB);
    ck_assert_uint_lt(bytes, 1ull << 50);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("memory");
    tcase_add_checked_fixture(t, make_scratch, remove_scratch);
    tcase_add_test(t, the_host_says_what_is_available);
    tcase_add_test(t, a_group_leaves_its_limit_less_what_cannot_be_had_back);
    tcase_add_test(t, a_group_is_found_by_its_controller);
    tcase_add_test(t, the_least_of_all_groups_above_counts);
    tcase_add_test(t, groups_of_version_1_count_too);
    tcase_add_test(t, this_machine_has_memory);
    suite_add_tcase(s, t);
    return run_suite(s);
}
