/*
 * What programs do to libshoal without meaning to, against a real deployment: for example_test.sh.
 *
 *   misuse CONFIG KEY VALUE    a configuration whose frontend serves the chain; CONFIG.other has
 *                              another state, and CONFIG.nobody a frontend that nobody runs
 *
 * Prints the first thing that is not as the header says, and ends with 1.
 */
#include <pthread.h>
#include <shoal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(condition)                                            \
  do {                                                                \
    if (!(condition)) {                                               \
      printf("misuse.c:%d: not so: %s\n", __LINE__, #condition);      \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static shoal_client *open_client(const char *config) {
  shoal_client *client = NULL;
  shoal_error *error = NULL;
  if (shoal_open(config, &client, &error) != SHOAL_OK) {
    printf("%s: %s\n", config, shoal_error_text(error));
    exit(1);
  }
  return client;
}

/* The code of a lookup of one key, which is released; *value is checked if it is not NULL. */
static shoal_code lookup(shoal_client *client, const char *key, const shoal_options *options,
                         const char *value) {
  shoal_bytes bytes;
  shoal_results *results = NULL;
  shoal_error *error = NULL;
  shoal_code code;
  bytes.data = key;
  bytes.size = strlen(key);
  code = shoal_lookup(client, &bytes, 1, options, &results, &error);
  REQUIRE(code == shoal_error_code(error));
  REQUIRE((code == SHOAL_OK) == (results != NULL));
  REQUIRE((code == SHOAL_OK) == (*shoal_error_text(error) == '\0'));
  if (code == SHOAL_OK && value != NULL) {
    shoal_result result;
    uint64_t sent = 0, received = 0;
    REQUIRE(shoal_results_count(results) == 1 && shoal_results_failed(results) == 0);
    REQUIRE(shoal_results_get(results, 1, &result) == SHOAL_INVALID_ARGUMENT);
    REQUIRE(shoal_results_get(results, 0, &result) == SHOAL_OK);
    REQUIRE(result.outcome == SHOAL_FOUND && result.error == NULL);
    REQUIRE(result.value_size == strlen(value));
    REQUIRE(strcmp(result.value, value) == 0); /* a zero byte follows */
    shoal_results_traffic(results, &sent, &received);
    REQUIRE(sent > 0 && received > sent);
  }
  shoal_results_free(results);
  shoal_error_free(error);
  return code;
}

/* A thread that cancels once it is told. */
struct canceller {
  shoal_cancellation *cancellation;
  const char *at; /* a part of the report at which it is told */
  int told;
  int pipe[2];
};
static void *cancel_when_told(void *argument) {
  struct canceller *canceller = argument;
  char byte;
  if (read(canceller->pipe[0], &byte, 1) == 1) shoal_cancel(canceller->cancellation);
  return NULL;
}
static void tell(const shoal_progress *progress, void *user) {
  struct canceller *canceller = user;
  if (canceller->told || strstr(progress->text, canceller->at) == NULL) return;
  canceller->told = 1;
  if (write(canceller->pipe[1], "x", 1) != 1) exit(1);
  usleep(100000); /* the other thread goes first */
}

static shoal_code cancelled_at(shoal_client *client, const char *key, const char *report) {
  struct canceller canceller;
  shoal_options options = SHOAL_OPTIONS;
  pthread_t thread;
  shoal_code code;
  memset(&canceller, 0, sizeof(canceller));
  canceller.cancellation = shoal_cancellation_new();
  canceller.at = report;
  REQUIRE(canceller.cancellation != NULL && pipe(canceller.pipe) == 0);
  REQUIRE(pthread_create(&thread, NULL, cancel_when_told, &canceller) == 0);
  options.progress = tell;
  options.user = &canceller;
  options.cancellation = canceller.cancellation;
  code = lookup(client, key, &options, NULL);
  REQUIRE(canceller.told);
  REQUIRE(pthread_join(thread, NULL) == 0);
  close(canceller.pipe[0]);
  close(canceller.pipe[1]);
  shoal_cancellation_free(canceller.cancellation);
  return code;
}

/* Another client, of the same state and of another one, from within a lookup. */
struct meanwhile {
  shoal_client *same_state;
  const char *key;
  shoal_code code;
};
static void ask_meanwhile(const shoal_progress *progress, void *user) {
  struct meanwhile *meanwhile = user;
  (void)progress;
  if (meanwhile->code == SHOAL_OK) meanwhile->code = lookup(meanwhile->same_state, meanwhile->key, NULL, NULL);
}

int main(int argc, char **argv) {
  char path[4096];
  shoal_client *client, *other, *nobody;
  const char *key, *value;
  shoal_bytes keys[2];
  shoal_results *results = NULL;
  shoal_options options = SHOAL_OPTIONS;
  struct meanwhile meanwhile;
  pid_t child;
  int status = 0;

  REQUIRE(argc == 4);
  key = argv[2];
  value = argv[3];
  REQUIRE(strcmp(shoal_code_name(SHOAL_UNAVAILABLE), "UNAVAILABLE") == 0);
  REQUIRE(strcmp(shoal_engines()[0], "chain") == 0);

  /* Configurations that are not there, and no place for one. */
  client = (shoal_client *)path;
  REQUIRE(shoal_open("/nonexistent/client.textproto", &client, NULL) == SHOAL_NOT_FOUND);
  REQUIRE(client == NULL);
  REQUIRE(shoal_open(NULL, NULL, NULL) == SHOAL_INVALID_ARGUMENT);
  unsetenv("HOME");
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("SHOAL_CONFIG");
  REQUIRE(shoal_open(NULL, &client, NULL) == SHOAL_NOT_FOUND);
  shoal_close(NULL);

  client = open_client(argv[1]);
  snprintf(path, sizeof(path), "%s.other", argv[1]);
  other = open_client(path);
  snprintf(path, sizeof(path), "%s.nobody", argv[1]);
  nobody = open_client(path);

  /* Keys that cannot be read, and engines that are not there. */
  keys[0].data = key;
  keys[0].size = strlen(key);
  keys[1].data = NULL;
  keys[1].size = 1;
  REQUIRE(shoal_lookup(client, keys, SIZE_MAX, NULL, &results, NULL) == SHOAL_INVALID_ARGUMENT);
  REQUIRE(shoal_lookup(client, keys, 2, NULL, &results, NULL) == SHOAL_INVALID_ARGUMENT);
  REQUIRE(shoal_lookup(client, NULL, 2, NULL, &results, NULL) == SHOAL_INVALID_ARGUMENT);
  REQUIRE(shoal_lookup(NULL, keys, 1, NULL, &results, NULL) == SHOAL_INVALID_ARGUMENT);
  REQUIRE(results == NULL);
  options.engine = "no-such-engine";
  REQUIRE(lookup(client, key, &options, NULL) == SHOAL_INVALID_ARGUMENT);
  options.engine = "simplepir"; /* and this deployment runs none */
  REQUIRE(lookup(client, key, &options, NULL) == SHOAL_INVALID_ARGUMENT);

  /* Nobody listens. Whoever does not want to wait for that cancels. */
  REQUIRE(cancelled_at(nobody, key, "does not answer") == SHOAL_CANCELLED);

  /* In the middle, at whatever the lookup does first, and when its queries are charged. The same
   * lookup then goes on; another one would ask anew. */
  REQUIRE(cancelled_at(client, key, "obtaining") == SHOAL_CANCELLED);
  REQUIRE(cancelled_at(client, key, "sending 8 queries") == SHOAL_CANCELLED);
  REQUIRE(lookup(client, key, NULL, value) == SHOAL_OK);

  /* One lookup at a time in a state; a client in its own callback; other states do not mind. */
  meanwhile.same_state = open_client(argv[1]);
  meanwhile.key = key;
  meanwhile.code = SHOAL_OK;
  options = (shoal_options)SHOAL_OPTIONS;
  options.progress = ask_meanwhile;
  options.user = &meanwhile;
  REQUIRE(lookup(client, key, &options, value) == SHOAL_OK);
  REQUIRE(meanwhile.code == SHOAL_BUSY);
  shoal_close(meanwhile.same_state);
  meanwhile.same_state = client;
  meanwhile.code = SHOAL_OK;
  REQUIRE(lookup(client, key, &options, value) == SHOAL_OK);
  REQUIRE(meanwhile.code == SHOAL_FAILED_PRECONDITION);
  REQUIRE(lookup(other, key, NULL, value) == SHOAL_OK);

  /* A child that was forked between calls may go on, and so may its parent. */
  child = fork();
  REQUIRE(child >= 0);
  if (child == 0) _exit(lookup(client, key, NULL, value) == SHOAL_OK ? 0 : 1);
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  REQUIRE(lookup(client, key, NULL, value) == SHOAL_OK);

  shoal_close(nobody);
  shoal_close(other);
  shoal_close(client);
  return 0;
}
