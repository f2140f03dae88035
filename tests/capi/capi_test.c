/* The C interface from C: values against attention written out in double precision, every failure
 * as a status with a message, versioning, strided views, state. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vcattn/c.h"

static int failures = 0;
static int checks = 0;

#define CHECK(condition)                                                                        \
  do {                                                                                          \
    ++checks;                                                                                   \
    if (!(condition)) {                                                                         \
      ++failures;                                                                               \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, vcattn_last_error()); \
    }                                                                                           \
  } while (0)

enum { kHeads = 2, kTokens = 150, kDim = 40, kSize = kHeads * kTokens * kDim };

static float q_data[kSize], k_data[kSize], v_data[kSize], out_data[kSize];
static float lse_data[kHeads * kTokens];

/* Sum of 12 uniform values: near N(0, 1), the same on every machine. */
static float next_normal(uint32_t* seed) {
  float sum = -6.0F;
  int i;
  for (i = 0; i < 12; ++i) {
    *seed = *seed * 1664525U + 1013904223U;
    sum += (float)(*seed >> 8) / 16777216.0F;
  }
  return sum;
}

static vcattn_tensor dense(float* data) {
  vcattn_tensor tensor = {NULL, VCATTN_F32, {1, kHeads, kTokens, kDim}, {0, 0, 0, 1}};
  tensor.data = data;
  tensor.stride[0] = kSize;
  tensor.stride[1] = kTokens * kDim;
  tensor.stride[2] = kDim;
  return tensor;
}

static vcattn_arguments make_arguments(void) {
  vcattn_arguments a;
  memset(&a, 0, sizeof a);
  a.struct_size = sizeof a;
  a.q = dense(q_data);
  a.k = dense(k_data);
  a.v = dense(v_data);
  a.out = dense(out_data);
  a.lse = lse_data;
  a.lse_stride[0] = kHeads * kTokens;
  a.lse_stride[1] = kTokens;
  a.lse_stride[2] = 1;
  return a;
}

/* Largest deviation of out_data and lse_data from the definition, in double precision. */
static void deviation(double* out_error, double* lse_error) {
  static double weights[kTokens];
  int h, i, j, c;
  *out_error = *lse_error = 0.0;
  for (h = 0; h < kHeads; ++h) {
    const int base = h * kTokens * kDim;
    for (i = 0; i < kTokens; ++i) {
      double top = -1e300, sum = 0.0;
      for (j = 0; j < kTokens; ++j) {
        double score = 0.0;
        for (c = 0; c < kDim; ++c) {
          score += (double)q_data[base + i * kDim + c] * k_data[base + j * kDim + c];
        }
        weights[j] = score / sqrt((double)kDim);
        if (weights[j] > top) top = weights[j];
      }
      for (j = 0; j < kTokens; ++j) sum += weights[j] = exp(weights[j] - top);
      *lse_error = fmax(*lse_error, fabs(lse_data[h * kTokens + i] - (top + log(sum))));
      for (c = 0; c < kDim; ++c) {
        double value = 0.0;
        for (j = 0; j < kTokens; ++j) value += weights[j] * v_data[base + j * kDim + c];
        *out_error = fmax(*out_error, fabs(out_data[base + i * kDim + c] - value / sum));
      }
    }
  }
}

static void test_values(const char* name, double out_bound, double lse_bound) {
  vcattn_arguments a = make_arguments();
  vcattn_recipe* recipe = NULL;
  double out_error, lse_error;
  int i;
  for (i = 0; i < kSize; ++i) out_data[i] = NAN;
  CHECK(vcattn_recipe_create(name, &recipe) == VCATTN_OK);
  CHECK(vcattn_can_use(&a, recipe, VCATTN_AUTO) == VCATTN_OK);
  CHECK(vcattn_attention(&a, recipe, VCATTN_AUTO, NULL) == VCATTN_OK);
  deviation(&out_error, &lse_error);
  CHECK(out_error <= out_bound);
  CHECK(lse_error <= lse_bound);
  vcattn_recipe_destroy(recipe);
}

static void test_failures(void) {
  vcattn_arguments a = make_arguments();
  vcattn_recipe* recipe = NULL;
  CHECK(vcattn_recipe_create("vc9", &recipe) == VCATTN_INVALID_ARGUMENT);
  CHECK(strstr(vcattn_last_error(), "vc8") != NULL); /* lists what is known */
  CHECK(strcmp(vcattn_last_error_where(), "recipe") == 0);
  CHECK(vcattn_recipe_create("vc8", NULL) == VCATTN_INVALID_ARGUMENT);
  CHECK(vcattn_recipe_create("vc8", &recipe) == VCATTN_OK);
  CHECK(vcattn_recipe_set(recipe, "hadamard", "perhaps") == VCATTN_INVALID_ARGUMENT);
  CHECK(vcattn_recipe_set(recipe, "hadamard", "off") == VCATTN_OK);

  CHECK(vcattn_attention(NULL, recipe, VCATTN_AUTO, NULL) == VCATTN_INVALID_ARGUMENT);
  CHECK(vcattn_attention(&a, NULL, VCATTN_AUTO, NULL) == VCATTN_INVALID_ARGUMENT);
  a.k.shape[2] = kTokens - 1;
  CHECK(vcattn_attention(&a, recipe, VCATTN_AUTO, NULL) == VCATTN_INVALID_ARGUMENT);
  CHECK(strcmp(vcattn_last_error_where(), "v") == 0);
  a = make_arguments();
  a.q.dtype = 17;
  CHECK(vcattn_attention(&a, recipe, VCATTN_AUTO, NULL) == VCATTN_INVALID_ARGUMENT);
  a = make_arguments();
  a.device = 7;
  CHECK(vcattn_can_use(&a, recipe, VCATTN_AUTO) == VCATTN_INVALID_ARGUMENT);
  a = make_arguments();
  a.struct_size = 8;
  CHECK(vcattn_can_use(&a, recipe, VCATTN_AUTO) == VCATTN_INVALID_ARGUMENT);
  CHECK(strcmp(vcattn_last_error_where(), "struct_size") == 0);
  a = make_arguments();
  a.device = VCATTN_CUDA;
  CHECK(vcattn_can_use(&a, recipe, VCATTN_USE_CPU) == VCATTN_UNSUPPORTED);
  vcattn_recipe_destroy(recipe);
}

static void test_recipes_and_explanation(void) {
  vcattn_arguments a = make_arguments();
  vcattn_recipe* recipe = NULL;
  vcattn_backend_info info;
  const char *field, *value, *kernel, *text;
  size_t i, fields = 0;
  int saw_vc8 = 0;
  for (i = 0; vcattn_recipe_name(i) != NULL; ++i) {
    saw_vc8 |= strcmp(vcattn_recipe_name(i), "vc8") == 0;
    CHECK(strlen(vcattn_recipe_summary(i)) > 10);
  }
  CHECK(saw_vc8);
  CHECK(vcattn_recipe_create("vc8", &recipe) == VCATTN_OK);
  CHECK(vcattn_recipe_set(recipe, "p_top", "100") == VCATTN_OK);
  while (vcattn_recipe_field(recipe, fields, &field, &value) == VCATTN_OK) {
    if (strcmp(field, "p_top") == 0) CHECK(strcmp(value, "100") == 0);
    ++fields;
  }
  CHECK(fields > 5);
  CHECK(vcattn_explain(&a, recipe, VCATTN_AUTO, &kernel, &text) == VCATTN_OK);
  CHECK(strncmp(kernel, "cpu/", 4) == 0);
  CHECK(strstr(text, "INT8") != NULL);
  CHECK(vcattn_backend_at(0, &info) == VCATTN_OK);
  CHECK(vcattn_backend_at(99, &info) == VCATTN_INVALID_ARGUMENT);
  vcattn_recipe_destroy(recipe);
}

static void test_state(void) {
  vcattn_arguments a = make_arguments();
  vcattn_recipe* recipe = NULL;
  vcattn_state* state = NULL;
  int32_t keys[kTokens], regroup, demean;
  char seen[kTokens] = {0};
  size_t count = 0, i;
  CHECK(vcattn_state_create_scheduled(0, 0.25, 4, 1, &state) == VCATTN_INVALID_ARGUMENT);
  CHECK(vcattn_state_create_scheduled(8, 0.25, 4, 1, &state) == VCATTN_OK);
  CHECK(vcattn_recipe_create("vc8", &recipe) == VCATTN_OK);
  CHECK(vcattn_state_permutation(state, 0, 0, NULL, &count) == VCATTN_OK && count == 0);
  CHECK(vcattn_state_begin_step(state, 0) == VCATTN_OK);
  CHECK(vcattn_attention(&a, recipe, VCATTN_AUTO, state) == VCATTN_OK);
  count = kTokens;
  CHECK(vcattn_state_permutation(state, 0, 1, keys, &count) == VCATTN_OK);
  CHECK(count == kTokens);
  for (i = 0; i < count; ++i) {
    CHECK(keys[i] >= 0 && keys[i] < kTokens && !seen[keys[i]]);
    seen[keys[i]] = 1;
  }
  CHECK(vcattn_state_begin_step(state, 2) == VCATTN_OK); /* ceil(0.25 * 8) = 2: past the window */
  CHECK(vcattn_state_action(state, &regroup, &demean) == VCATTN_OK);
  CHECK(regroup == 0 && demean == 1);
  CHECK(vcattn_state_begin_step(state, 8) == VCATTN_INVALID_ARGUMENT);
  CHECK(vcattn_state_reset(state) == VCATTN_OK);
  vcattn_state_destroy(state);
  CHECK(vcattn_state_create_scheduled(8, 0.25, 4, 0, &state) == VCATTN_OK);
  CHECK(vcattn_state_begin_step(state, 2) == VCATTN_OK);
  CHECK(vcattn_state_action(state, &regroup, &demean) == VCATTN_OK);
  CHECK(regroup == 0 && demean == 0);
  vcattn_state_destroy(state);
  vcattn_recipe_destroy(recipe);
}

int main(void) {
  uint32_t seed = 5;
  int i;
  for (i = 0; i < kSize; ++i) {
    q_data[i] = next_normal(&seed);
    k_data[i] = next_normal(&seed) + 0.5F; /* a mean key: the LSE must be corrected for it */
    v_data[i] = next_normal(&seed);
  }
  CHECK(vcattn_abi_version() == VCATTN_ABI_VERSION);
  CHECK(vcattn_arguments_size() == sizeof(vcattn_arguments));
  CHECK(strlen(vcattn_version()) >= 5);
  test_values("exact", 2e-5, 2e-5);
  test_values("vc8", 0.2, 0.05);
  test_failures();
  test_recipes_and_explanation();
  test_state();
  printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
