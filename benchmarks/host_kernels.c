// What a host does for an accelerator that only multiplies: plain loops, float inside, int8 outside.
//
// usage: host_kernels KERNEL ELEMENTS ROW REPEATS
// A row is what softmax and LayerNorm reduce over. benchmarks/host.py counts the instructions of the repeats on
// RV64GC and their time here; a checksum goes to standard error, so that nothing is left out.

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int8_t *narrow;
static float *wide, *residual, *gamma_, *beta_;

static void dequantise(int n) {
  for (int i = 0; i < n; i++) wide[i] = 0.05f * narrow[i];
}

static void quantise(int n) {
  for (int i = 0; i < n; i++) {
    float x = wide[i] * 20.0f;
    x = x < -128.0f ? -128.0f : x > 127.0f ? 127.0f : x;
    narrow[i] = (int8_t)lrintf(x);
  }
}

static void softmax(int n, int row) {
  for (float *x = wide; x < wide + n; x += row) {
    float most = x[0], sum = 0.0f;
    for (int i = 1; i < row; i++) most = x[i] > most ? x[i] : most;
    for (int i = 0; i < row; i++) {
      x[i] = expf(x[i] - most);
      sum += x[i];
    }
    const float scale = 1.0f / sum;
    for (int i = 0; i < row; i++) x[i] *= scale;
  }
}

static void layernorm(int n, int row) {
  for (float *x = wide; x < wide + n; x += row) {
    float sum = 0.0f, squares = 0.0f;
    for (int i = 0; i < row; i++) sum += x[i];
    const float mean = sum / row;
    for (int i = 0; i < row; i++) squares += (x[i] - mean) * (x[i] - mean);
    const float scale = 1.0f / sqrtf(squares / row + 1e-12f);
    for (int i = 0; i < row; i++) x[i] = (x[i] - mean) * scale * gamma_[i] + beta_[i];
  }
}

static void gelu(int n) {
  for (int i = 0; i < n; i++) wide[i] = 0.5f * wide[i] * (1.0f + erff(wide[i] * 0.70710678f));
}

static void add(int n) {
  for (int i = 0; i < n; i++) wide[i] += residual[i];
}

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  const char *kernel = argv[1];
  const int n = atoi(argv[2]), row = atoi(argv[3]), repeats = atoi(argv[4]);
  narrow = malloc(n);
  wide = malloc(n * sizeof(float));
  residual = malloc(n * sizeof(float));
  gamma_ = malloc(row * sizeof(float));
  beta_ = malloc(row * sizeof(float));
  uint32_t seed = 1;
  for (int i = 0; i < n; i++) {
    seed = seed * 1664525u + 1013904223u;
    narrow[i] = (int8_t)(seed >> 24);
    wide[i] = 0.03f * narrow[i];
    residual[i] = 0.02f * narrow[i];
  }
  for (int i = 0; i < row; i++) gamma_[i] = 1.0f, beta_[i] = 0.01f;
  for (int i = 0; i < repeats; i++) {
    if (!strcmp(kernel, "dequantise")) dequantise(n);
    else if (!strcmp(kernel, "quantise")) quantise(n);
    else if (!strcmp(kernel, "softmax")) softmax(n, row);
    else if (!strcmp(kernel, "layernorm")) layernorm(n, row);
    else if (!strcmp(kernel, "gelu")) gelu(n);
    else if (!strcmp(kernel, "add")) add(n);
    else return 2;
    __asm__ volatile("" ::: "memory");
  }
  double check = 0;
  for (int i = 0; i < n; i++) check += wide[i] + narrow[i];
  fprintf(stderr, "%g\n", check);
  return 0;
}
