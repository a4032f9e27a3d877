// Stand-ins for libc's memory functions, whose accesses nothing would see. Every C file includes
// this first (build.rs); memory.c is instrumented as they are.
#pragma once
#include <stddef.h>
#include <string.h>

void *watched_copy(void *to, const void *from, size_t bytes);
void *watched_move(void *to, const void *from, size_t bytes);
void *watched_set(void *to, int byte, size_t bytes);
int watched_compare(const void *a, const void *b, size_t bytes);

#define memcpy watched_copy
#define memmove watched_move
#define memset watched_set
#define memcmp watched_compare
