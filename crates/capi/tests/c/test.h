/* What the tests of the C interface share: expectations that say where, and random numbers. */
#ifndef TEST_H
#define TEST_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <overbank.h>

/* Instruction set of every table; NULL: the best. */
extern const char *isa;
/* Random operations of each twin. */
extern size_t operations;
/* Where files may be written. */
extern const char *folder;

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
			abort(); \
		} \
	} while (0)

/* The call ends with this status. */
#define STATUS(status, call) \
	do { \
		enum overbank_status said = (call); \
		if (said != (status)) { \
			fprintf(stderr, "%s:%d: %s: %d (%s: %s)\n", __FILE__, __LINE__, #call, (int)said, \
				overbank_strerror(said), overbank_last_error()); \
			abort(); \
		} \
	} while (0)

#define OK(call) STATUS(OVERBANK_OK, call)

/* The call fails with this status, and its message has these words. */
#define FAILS(status, words, call) \
	do { \
		STATUS(status, call); \
		if (!strstr(overbank_last_error(), words)) { \
			fprintf(stderr, "%s:%d: %s: \"%s\" is not in \"%s\"\n", __FILE__, __LINE__, #call, words, \
				overbank_last_error()); \
			abort(); \
		} \
	} while (0)

#define INVALID(words, call) FAILS(OVERBANK_INVALID, words, call)

/* A pointer of the same type, one byte further: aligned to nothing. */
#define ASKEW(type, pointer) ((type *)(void *)((char *)(void *)(pointer) + 1))

/* The next of a sequence of random numbers. */
static inline uint64_t next_random(uint64_t *state)
{
	return overbank_mix((*state)++);
}

/* Writes the name of a file in `folder` to `path`. */
static inline void path_of(char path[static 512], const char *name)
{
	CHECK(snprintf(path, 512, "%s/%s", folder, name) < 512);
}

/* Changes one byte of a file. */
static inline void damage(const char *path, long at)
{
	FILE *file = fopen(path, "r+b");
	CHECK(file && fseek(file, at, SEEK_SET) == 0);
	int byte = fgetc(file);
	CHECK(byte != EOF && fseek(file, at, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF);
	CHECK(fclose(file) == 0);
}

/* Bytes of address space of the process. */
static inline long address_space(void)
{
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%ld", &pages) == 1 && fclose(file) == 0);
	return pages * 4096;
}

void test_border(void);
void test_cache(void);
void test_fib(void);
void test_partition(void);
void test_sketch(void);
void test_copies(void);
void test_copies_gate(void);
void test_versioned(void);
void test_tree(void);

#endif
