// A crowd of devices in one process, each with its own master seed, slots and queries, every answer
// verified. They ask through one round of the chain, or through a single-server engine.
#ifndef SHOAL_SRC_LOAD_LOAD_GENERATOR_H_
#define SHOAL_SRC_LOAD_LOAD_GENERATOR_H_

#include <functional>

#include "absl/status/statusor.h"
#include "src/client/environment.h"
#include "src/client/transport.h"
#include "src/load/options.h"
#include "src/load/report.h"
#include "src/roster/roster.h"
#include "src/table/table.h"

namespace shoal::load {

// Opens a table again, whose directory has a newer epoch by now. From any one thread at a time.
using TableOpener = std::function<absl::StatusOr<table::UnsignedTable>()>;

// Runs one round of the whole crowd, or all its queries to an engine. Answers are compared with
// `expected`, the deployment's table, unless it is null. Lost devices and wrong answers are no
// errors but counted in the report. Where the frontend has several machines, each device draws one
// of them for the round and stays with it, if the environment can connect to them.
//
// Errors: those of ChainClient::Ask with the chain, of FetchSetup and ObtainHint with an engine;
// INVALID_ARGUMENT when a device's queries do not fit in memory; RESOURCE_EXHAUSTED when the
// crowd's queries, or those at one of the frontend's machines, do not fit a round;
// FAILED_PRECONDITION as LookUp (src/client/retrieval.h) when the table expired meanwhile.
//
// With refreshes, the round has a term, and the crowd stays for so many of its refreshes, each from
// a newer epoch of the table. Devices obey the rules of docs/threat-model.md, "Terms": each fetches
// all of its answers in every refresh but those that it sleeps through, and does so again in the
// next one whatever came. Answers are compared with the table that `open_table` gives, if that is
// the refresh's. What ends the term early is in the report.
//
// Memory: 4 bytes a query (row); 110 a device (seed, submission, whether it is lost, when it
// submitted, a latency; more if its queries take several requests); Popularity's; 33 a row of the
// table unless verify_each; with refreshes 4 + 32 for each party a query (slot, term seeds). For
// every connection: all answers of one device, or some pieces of
// kMaxBulkBytes where small devices share connections, and about 30 bytes for every query of one
// device. With an engine: its client (Sizes::hint_memory_bytes), and 256 MiB of queries and answers
// at a time.
absl::StatusOr<CrowdReport> RunLoad(const CrowdOptions& options, const roster::PinnedParties& pins,
                                    const CrowdKeys& keys, const table::UnsignedTable* expected,
                                    const client::TransportFactory& connect,
                                    client::Environment environment, const CrowdProgress& progress,
                                    const TableOpener& open_table = nullptr);

}  // namespace shoal::load

#endif  // SHOAL_SRC_LOAD_LOAD_GENERATOR_H_
