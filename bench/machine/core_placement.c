/* Do two virtual processors share a way to memory? A CSV row about every 0.8 s, on standard output: what one of
   them reads alone, what both read at once, and how long a word takes from one to the other and back.

   cc -O3 -march=native -pthread bench/machine/core_placement.c -o placement && ./placement 150 > placement.csv

   It takes x86-64 with AVX, two processors (0 and 1) and 1 GiB. How to read it: data/core_placement.md. */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUFFER_BYTES = 1 << 29, PASSES = 2, ROUND_TRIPS = 200000, PAUSE_NS = 700000000 };
enum task { READ, ANSWER };

static char *buffers[2];
static volatile double sum; /* what was read is used, so no compiler leaves the reading out */
static pthread_barrier_t together;
static enum task task;
static _Alignas(128) atomic_int word;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void pin(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  if (sched_setaffinity(0, sizeof set, &set)) {
    perror("processors 0 and 1 are needed");
    exit(1);
  }
}

/* Four independent sums from two places of the buffer: enough loads under way to fill one processor's queue. */
static void read_all(const char *buffer) {
  const double *low = (const double *)buffer, *high = low + BUFFER_BYTES / 16;
  for (int pass = 0; pass < PASSES; pass++) {
    __m256d a = _mm256_setzero_pd(), b = a, c = a, d = a;
    for (long k = 0; k < BUFFER_BYTES / 16; k += 8) {
      a = _mm256_add_pd(a, _mm256_load_pd(low + k));
      b = _mm256_add_pd(b, _mm256_load_pd(low + k + 4));
      c = _mm256_add_pd(c, _mm256_load_pd(high + k));
      d = _mm256_add_pd(d, _mm256_load_pd(high + k + 4));
    }
    a = _mm256_add_pd(_mm256_add_pd(a, b), _mm256_add_pd(c, d));
    sum = a[0];
  }
}

static void pass_word(int mine, int theirs) {
  for (int k = 0; k < ROUND_TRIPS; k++) {
    if (mine) atomic_store_explicit(&word, mine, memory_order_release);
    while (atomic_load_explicit(&word, memory_order_acquire) != theirs) {
    }
    if (!mine) atomic_store_explicit(&word, mine, memory_order_release);
  }
}

static void *second_processor(void *nothing) {
  pin(1);
  for (;;) {
    pthread_barrier_wait(&together);
    if (task == READ) read_all(buffers[1]);
    else pass_word(0, 1);
    pthread_barrier_wait(&together);
  }
  return nothing;
}

static double both(enum task what) {
  task = what;
  pthread_barrier_wait(&together);
  double begin = seconds();
  if (what == READ) read_all(buffers[0]);
  else pass_word(1, 0);
  pthread_barrier_wait(&together);
  return seconds() - begin;
}

static double alone(void) {
  double begin = seconds();
  read_all(buffers[0]);
  return seconds() - begin;
}

int main(int count, char **arguments) {
  double limit_s = count > 1 ? atof(arguments[1]) : 150, bytes = (double)BUFFER_BYTES * PASSES;
  pthread_t thread;
  pin(0);
  for (int k = 0; k < 2; k++) {
    buffers[k] = aligned_alloc(1 << 21, BUFFER_BYTES);
    memset(buffers[k], 0, BUFFER_BYTES);
  }
  pthread_barrier_init(&together, NULL, 2);
  pthread_create(&thread, NULL, second_processor, NULL);
  puts("elapsed_s,one_core_bytes_per_s,two_cores_bytes_per_s,round_trip_s");
  for (double begin = seconds(); seconds() - begin < limit_s;) {
    double one = bytes / alone(), two = 2 * bytes / both(READ), trip_s = both(ANSWER) / ROUND_TRIPS;
    printf("%.1f,%.3e,%.3e,%.3e\n", seconds() - begin, one, two, trip_s);
    fflush(stdout);
    nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
  }
}
