/*
 * libshoal: private lookups in a public table, for programs in C and in every language that can
 * call C.
 *
 *   shoal_client *client;
 *   shoal_results *results;
 *   shoal_error *error = NULL;
 *   shoal_bytes keys[] = {{"bash", 4}, {"openssl", 7}};
 *   if (shoal_open(NULL, &client, &error) == SHOAL_OK &&
 *       shoal_lookup(client, keys, 2, NULL, &results, &error) == SHOAL_OK) {
 *     shoal_result result;
 *     shoal_results_get(results, 0, &result);
 *     ...
 *   }
 *
 * What is private
 *   A lookup tells nobody which keys were asked for, under the assumptions of docs/threat-model.md.
 *   By the chain (the default) that holds as long as one party of the chain is honest, up to the
 *   epsilon and delta of the deployment's noise; every lookup is charged to the ledger in the state
 *   file, and a limit in the configuration (max_epsilon) stops a lookup that would go beyond it. By
 *   an engine of one server it holds by encryption alone; by an engine of two servers, as long as
 *   these two do not work together. What anybody on the way can see is that this client asks, when,
 *   and how many queries it sends: the number of keys rounded up (pad_to of the configuration,
 * `pad` of the options), never which. That the answers are right is not a matter of trust: every
 * value, and every "absent", is proved by signatures of all parties.
 *
 * What the caller must not do
 *   Nothing that somebody else can see may depend on what a lookup returned, beyond what that
 *   somebody may know. In particular:
 *   - Do not repeat a lookup because keys have the outcome SHOAL_FAILED, or because shoal_lookup
 *     returned SHOAL_UNAUTHENTICATED or SHOAL_DATA_LOSS: a server that answers wrongly on purpose
 *     learns from the second try whether its wrong answer was to a key of yours. Show it to a
 * person.
 *   - Do not fetch, connect to or look up something else at once because of a value: the time of
 *     that visit tells what the value was. Do such things at times that do not depend on values.
 *   - Do not look up one key after the other where each depends on the last one's value: the number
 *     of lookups can then be seen. Collect keys and ask for all of them in one call.
 *   - Do not write values, or keys, to a log that others read.
 *   Repeating a call after SHOAL_UNAVAILABLE, SHOAL_CANCELLED or a crash is right: it goes on where
 *   it stopped, with the same bytes.
 *
 * Files
 *   shoal_open reads the configuration (configs/client.textproto explains each field). The state
 *   file that it names is made by the first lookup, readable by its owner alone (0600), with files
 *   beside it whose names begin with its name. It is as of `shoal query`: programs of this library
 *   and the commands of `shoal` may share it, one at a time. A lookup locks it from its beginning
 * to its end; who comes second gets SHOAL_BUSY. Secrets are durable on disk as used before anything
 *   made with them is sent. Copies of a state file must not be used (docs/operations.md).
 *
 * Threads
 *   Different clients are independent. One client may be used by several threads: its lookups and
 *   preparations take turns. A lookup uses as many threads as the machine has cores; none of them
 *   lives longer than the call. shoal_cancel may be called from any thread, and from a signal
 *   handler. Results and errors are not changed after they are returned, so that any number of
 *   threads may read them.
 *
 * What the library does to the process
 *   It does not print, log, exit, or install signal handlers, and it does not change the locale,
 * the environment or the working directory. It ends the process (SIGABRT, a line on standard error)
 *   only if an invariant of its own is broken, which no input and no peer can bring about, or if
 *   memory runs out on one of its threads. Once loaded it stays loaded: dlclose keeps it in memory.
 *   fork: no thread and no lock of the library is left between calls, so that parent and child may
 *   both go on with a client that was idle. A child that was forked while another thread was in a
 *   call cannot use that client (SHOAL_FAILED_PRECONDITION), and holds the lock of the state until
 * it calls exec or ends.
 *
 * Ownership
 *   What a function takes stays the caller's, and must stay unchanged until the function returns;
 *   nothing of it is used afterwards, but for the `cancellation` and the `user` pointer of options,
 *   which are used until the call returns. What a function makes is given back by the function
 *   named ..._free or shoal_close, which take NULL too. Texts end with a zero byte, are UTF-8 but
 * for names of files in them, and belong to the object that they were asked of.
 *
 * Errors
 *   Functions that can fail return a code. If they fail and `error` is not NULL, *error is a new
 *   error with the code and a text for people; if they succeed, *error is not touched. Outputs are
 *   set to NULL first, and stay NULL after an error. Texts name files, addresses and options of the
 *   `shoal` program (--over-rounds is SHOAL_OVER_ROUNDS here), and may name a key's position, never
 * a key or a value. They are not to be parsed: only codes are kept between versions.
 *
 * Versions
 *   The library's soname is libshoal.so.1 and its symbols have the version SHOAL_1. Within that,
 *   functions, codes, and fields at the end of structures are only added: a structure that the
 * caller fills begins with its size, by which the library knows which fields there are.
 */
#ifndef SHOAL_H_
#define SHOAL_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header's interface. */
#define SHOAL_INTERFACE 1

/* The most keys of one call, and the most bytes of a key and of all keys of a call together. */
#define SHOAL_MAX_KEYS 16777216u
#define SHOAL_MAX_KEY_BYTES 4096u
#define SHOAL_MAX_ALL_KEY_BYTES 1073741824u

/* What a function returns. */
typedef int shoal_code;
enum {
  SHOAL_OK = 0,
  /* shoal_cancel was called. The same lookup can go on later, as after a crash. */
  SHOAL_CANCELLED = 1,
  /* An argument or the configuration is wrong (a NULL, an unknown engine, too many keys, an engine
   * at a server that runs none); or the parties contradict each other. Nothing was asked. */
  SHOAL_INVALID_ARGUMENT = 3,
  /* No round took this lookup in the time that the configuration allows. */
  SHOAL_DEADLINE_EXCEEDED = 4,
  /* A file is missing, or the server runs engines, and not this one. */
  SHOAL_NOT_FOUND = 5,
  /* A file cannot be read or written, or others may read it and must not. */
  SHOAL_PERMISSION_DENIED = 7,
  /* No memory or no room on a disk; or what was prepared is spent (shoal_prepare). */
  SHOAL_RESOURCE_EXHAUSTED = 8,
  /* Something else has to be done first: the text says what. Nothing was asked, or it was asked and
   * the table expired before its answers came. */
  SHOAL_FAILED_PRECONDITION = 9,
  /* The rounds of this lookup came to nothing, as often as the configuration allows. */
  SHOAL_ABORTED = 10,
  /* A server does not do what this version asks for. */
  SHOAL_UNIMPLEMENTED = 12,
  /* A fault of this library or of a server. */
  SHOAL_INTERNAL = 13,
  /* A server could not be reached. The same call may be made again. */
  SHOAL_UNAVAILABLE = 14,
  /* A server's bytes, or a file, are damaged or not what was signed. Do not try again by program.
   */
  SHOAL_DATA_LOSS = 15,
  /* A server or a signature is not that of the parties that the configuration trusts. Do not try
   * again by program. */
  SHOAL_UNAUTHENTICATED = 16,
  /* Another lookup uses the state: of this process by another client, or of another process. */
  SHOAL_BUSY = 100
};

/* "UNAVAILABLE"; "UNKNOWN" for a number that this version does not know. Never NULL. */
const char* shoal_code_name(shoal_code code);

/* "0.3.0": of the library that runs, which may be newer than this header. */
const char* shoal_version(void);

/* The engines of this version, the chain ("chain") first, then NULL. Which of them a deployment
 * runs is for its parties to say. */
const char* const* shoal_engines(void);

typedef struct shoal_error shoal_error;
shoal_code shoal_error_code(const shoal_error* error);  /* SHOAL_OK for NULL */
const char* shoal_error_text(const shoal_error* error); /* "" for NULL */
void shoal_error_free(shoal_error* error);

/* Any bytes. `data` may be NULL if `size` is 0. */
typedef struct shoal_bytes {
  const void* data;
  size_t size;
} shoal_bytes;

/*
 * A client: a configuration, checked. Nothing is sent and no file but the configuration and the
 * pinned parties is read by shoal_open. `path` is a configuration file, or a directory with
 * client.textproto in it; NULL is the one that the environment variable SHOAL_CONFIG names, or else
 * the user's own: $XDG_CONFIG_HOME/shoal/client.textproto, or ~/.config/shoal/client.textproto.
 * Relative paths count from the directory that the process is in now.
 * NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT (names file and field).
 */
typedef struct shoal_client shoal_client;
shoal_code shoal_open(const char* path, shoal_client** client, shoal_error** error);
/* No call may be running. */
void shoal_close(shoal_client* client);

/*
 * Ends calls early. One cancellation serves any number of calls, and stays cancelled. A call
 * notices within a fifth of a second, unless it computes; it ends with SHOAL_CANCELLED, or as if
 * nothing had happened, if all answers had come.
 */
typedef struct shoal_cancellation shoal_cancellation;
shoal_cancellation* shoal_cancellation_new(void); /* NULL: no memory */
void shoal_cancel(shoal_cancellation* cancellation);
/* No call may be using it. */
void shoal_cancellation_free(shoal_cancellation* cancellation);

/* What a call says while it runs. Valid during the callback. */
enum {
  /* What it does: `text`. */
  SHOAL_TELL = 1,
  /* What a person should know: `text`. */
  SHOAL_WARN = 2,
  /* `done` of `total` steps of the stage `text`. */
  SHOAL_COUNT = 3,
  /* What it waits for, and that this is due at `due` at the latest, seconds since 1970. */
  SHOAL_WAIT = 4
};
typedef struct shoal_progress {
  size_t size; /* of this structure, for later fields */
  int kind;
  const char* text; /* for people; never a key or a value */
  uint64_t done, total;
  uint64_t due;
} shoal_progress;
/* Called from any thread, one call at a time. It must not call this library, except for
 * shoal_cancel; a call with the same client is refused (SHOAL_FAILED_PRECONDITION). C++ exceptions
 * and longjmp must not leave it. */
typedef void (*shoal_progress_callback)(const shoal_progress* progress, void* user);

/* What becomes of a lookup by the chain that is larger than a round protects. */
enum {
  SHOAL_REFUSE = 0, /* nothing is sent: SHOAL_FAILED_PRECONDITION */
  SHOAL_OVER_ROUNDS =
      1,                /* as many queries as a round protects in each round, one after the other */
  SHOAL_ACCEPT_MORE = 2 /* all in one round, with less protection */
};

typedef struct shoal_options {
  size_t size; /* sizeof(shoal_options) */
  /* "chain", or NULL for it; or another of shoal_engines(). */
  const char* engine;
  /* With an engine: the number of the party of each of its servers; for an engine of two, the
   * offline one first. None: those of the configuration. */
  const uint32_t* parties;
  size_t party_count;
  /* With an engine: the number of queries is rounded up to a multiple of this. 0 is 1. The chain
   * rounds up to pad_to of the configuration. */
  uint32_t pad;
  /* With the chain: SHOAL_REFUSE and so on. */
  int beyond;
  shoal_progress_callback progress; /* may be NULL */
  void* user;                       /* for `progress` */
  shoal_cancellation* cancellation; /* may be NULL */
} shoal_options;
/* shoal_options options = SHOAL_OPTIONS; then set what should differ. */
#ifdef __cplusplus
#define SHOAL_OPTIONS \
  { sizeof(shoal_options), nullptr, nullptr, 0, 0, 0, nullptr, nullptr, nullptr }
#else
#define SHOAL_OPTIONS \
  { sizeof(shoal_options), NULL, NULL, 0, 0, 0, NULL, NULL, NULL }
#endif

/*
 * Looks up `count` keys, 1 to SHOAL_MAX_KEYS, each of 1 to SHOAL_MAX_KEY_BYTES bytes; keys may
 * repeat. One result for each, in order. Blocks: by an engine for a fraction of a second and more,
 * by the chain until its round is over, which may take minutes. `options` may be NULL. Each call
 * connects anew and verifies the deployment's present epoch. An answer that cannot be verified is
 * no error of the call: its keys have the outcome SHOAL_FAILED.
 */
typedef struct shoal_results shoal_results;
shoal_code shoal_lookup(shoal_client* client, const shoal_bytes* keys, size_t count,
                        const shoal_options* options, shoal_results** results, shoal_error** error);

/* The outcome for one key. */
enum {
  SHOAL_FOUND = 1,
  SHOAL_ABSENT = 2, /* proved: the table has no such key */
  SHOAL_FAILED = 3, /* no verified answer; do not ask again because of it */
  /* Verified, and not absent: the row of the key is full, and may lack it. It is known once the
   * parties place all keys anew. Do not ask again before you would have done so anyway. */
  SHOAL_UNKNOWN = 4
};
typedef struct shoal_result {
  int outcome;
  /* Of SHOAL_FOUND, with a zero byte behind it that `size` does not count; otherwise NULL and 0. */
  const void* value;
  size_t value_size;
  const char* error; /* of SHOAL_FAILED, for people; otherwise NULL */
} shoal_result;
size_t shoal_results_count(const shoal_results* results);  /* 0 for NULL */
size_t shoal_results_failed(const shoal_results* results); /* how many are SHOAL_FAILED */
/* Fills *result, whose pointers are valid until shoal_results_free. INVALID_ARGUMENT for NULL or an
 * index out of range; then *result is SHOAL_FAILED. */
shoal_code shoal_results_get(const shoal_results* results, size_t index, shoal_result* result);
/* Bytes on the connections, without TLS, for this lookup: queries and answers, hints, rounds. */
void shoal_results_traffic(const shoal_results* results, uint64_t* sent, uint64_t* received);
/* Wipes the values. */
void shoal_results_free(shoal_results* results);

/*
 * Prepares queries of an engine that keeps hints of its own (piano, treepir, permuted), as `shoal
 * prepare`: reads the table, or has hints made, without a key. It takes minutes for large tables,
 * goes on where it was cancelled, and does nothing if there is nothing to do. Lookups through
 * another client may run meanwhile. `queries` (may be NULL) is how many queries are prepared now;
 * SHOAL_UNLIMITED if they do not run out. A lookup prepares by itself only if nothing ever was.
 * `anew`: not 0 gives up what is prepared first, which the server can see: for another table, for
 * servers in other roles, or on a day that was fixed before. Never because a lookup failed: that
 * tells whoever spoilt the hints of one row that this row was asked for.
 * INVALID_ARGUMENT for an engine that prepares nothing. `pad` and `beyond` of options are not used.
 */
#define SHOAL_UNLIMITED UINT64_MAX
shoal_code shoal_prepare(shoal_client* client, const shoal_options* options, int anew,
                         uint64_t* queries, shoal_error** error);

#ifdef __cplusplus
}
#endif

#endif /* SHOAL_H_ */
