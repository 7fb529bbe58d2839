/*
 * Looks keys up without telling anybody which:
 *
 *   cc example.c -o example $(pkg-config --cflags --libs shoal)
 *   ./example [--config FILE] [--engine NAME] [--party N]... [--prepare] KEY...
 *
 * Prints a line for every key. Ctrl-C ends it in order: the same command then goes on. Exit code 0, 1
 * after an error, 2 for a wrong command line, 3 if an answer could not be verified.
 */
#include <inttypes.h>
#include <shoal.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static shoal_cancellation *cancellation;

static void on_interrupt(int signal_number) {
  (void)signal_number;
  shoal_cancel(cancellation);
}

static void show_progress(const shoal_progress *progress, void *user) {
  (void)user;
  if (progress->kind == SHOAL_COUNT) {
    fprintf(stderr, "%s: %" PRIu64 " of %" PRIu64 "\n", progress->text, progress->done,
            progress->total);
  } else {
    fprintf(stderr, "%s%s\n", progress->kind == SHOAL_WARN ? "warning: " : "", progress->text);
  }
}

static int failed(shoal_error *error) {
  const shoal_code code = shoal_error_code(error);
  fprintf(stderr, "%s: %s\n", shoal_code_name(code), shoal_error_text(error));
  shoal_error_free(error);
  return code == SHOAL_UNAUTHENTICATED || code == SHOAL_DATA_LOSS ? 3 : 1;
}

static void print(const char *key, const shoal_result *result) {
  printf("%s\t", key);
  switch (result->outcome) {
    case SHOAL_FOUND:
      printf("found\t");
      fwrite(result->value, 1, result->value_size, stdout);
      printf("\n");
      break;
    case SHOAL_ABSENT:
      printf("absent\n");
      break;
    case SHOAL_UNKNOWN:
      printf("unknown\n");
      break;
    default: /* To be shown to a person. To ask again would tell who answered wrongly. */
      printf("failed\t%s\n", result->error);
      break;
  }
}

int main(int argc, char **argv) {
  const char *config = NULL;
  shoal_options options = SHOAL_OPTIONS;
  uint32_t parties[8];
  int prepare = 0, i, code = 0;
  shoal_bytes *keys = calloc((size_t)argc, sizeof(*keys));
  size_t count = 0, at;
  shoal_client *client = NULL;
  shoal_results *results = NULL;
  shoal_error *error = NULL;

  if (keys == NULL) return 1;
  for (i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--prepare") == 0) {
      prepare = 1;
    } else if (strcmp(argv[i], "--config") == 0 && i + 1 < argc) {
      config = argv[++i];
    } else if (strcmp(argv[i], "--engine") == 0 && i + 1 < argc) {
      options.engine = argv[++i];
    } else if (strcmp(argv[i], "--party") == 0 && i + 1 < argc && options.party_count < 8) {
      parties[options.party_count++] = (uint32_t)strtoul(argv[++i], NULL, 10);
      options.parties = parties;
    } else if (argv[i][0] == '-') {
      fprintf(stderr, "usage: example [--config FILE] [--engine NAME] [--party N]... KEY...\n");
      return 2;
    } else {
      keys[count].data = argv[i];
      keys[count++].size = strlen(argv[i]);
    }
  }
  cancellation = shoal_cancellation_new();
  signal(SIGINT, on_interrupt);
  options.progress = show_progress;
  options.cancellation = cancellation;

  if (shoal_open(config, &client, &error) != SHOAL_OK) {
    code = failed(error);
  } else if (prepare) {
    uint64_t queries = 0;
    if (shoal_prepare(client, &options, 0, &queries, &error) != SHOAL_OK) {
      code = failed(error);
    } else if (queries == SHOAL_UNLIMITED) {
      printf("queries\tunlimited\n");
    } else {
      printf("queries\t%" PRIu64 "\n", queries);
    }
  } else if (shoal_lookup(client, keys, count, &options, &results, &error) != SHOAL_OK) {
    code = failed(error);
  } else {
    for (at = 0; at < count; ++at) {
      shoal_result result;
      shoal_results_get(results, at, &result);
      print(keys[at].data, &result);
    }
    if (shoal_results_failed(results) > 0) code = 3;
  }
  shoal_results_free(results);
  shoal_close(client);
  shoal_cancellation_free(cancellation);
  free(keys);
  return code;
}
