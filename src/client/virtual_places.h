// The queries of a list over a table whose queries are for buckets of rows (docs/privacy.md, "A
// list in virtual places").
//
// A virtual place is a bucket and a copy below c, the roster's most_in_bucket: there are c B of
// them for B buckets. The wanted rows of a bucket have its copies from 0 on, and those beyond c
// have none: their keys are unknown in this lookup. They are not asked in another round, which
// would show that there are such. Then the list is padded over all virtual places as one of rows is
// over all rows.
//
//     wanted rows  ->  places of at most c a bucket  ->  PadRows over c B  ->  a row of each bucket
//
// So one key more, less or other changes at most one place, whatever buckets are full, in a
// coupling of both lists' padding; and the number of queries follows from the number of keys alone.
// A place that no wanted row has asks for a random row of its bucket.
#ifndef SHOAL_SRC_CLIENT_VIRTUAL_PLACES_H_
#define SHOAL_SRC_CLIENT_VIRTUAL_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/query_buckets.h"
#include "src/base/random.h"

namespace shoal::client {

class VirtualPlaces {
 public:
  // most_in_bucket is 1 or more, and there are at most 2^32 places (checked): round::CheckHeader
  // has seen both.
  VirtualPlaces(const QueryBuckets& buckets, uint32_t most_in_bucket);

  uint64_t count() const { return uint64_t{most_in_bucket_} * buckets_.count(); }

  // The number of queries for so many distinct keys of a list: the next multiple of `pad_to` (at
  // least one), but at most count(). Of keys and not of rows: the number of rows, or of places,
  // would show how many keys share one, or have none.
  uint32_t Queries(size_t distinct_keys, uint32_t pad_to) const;

  struct Taken {
    std::vector<uint32_t> places;   // rising
    std::vector<uint32_t> rows;     // of each place
    std::vector<uint32_t> unknown;  // rows that have none
  };
  // The places of wanted rows, which are distinct (checked) and below buckets.rows(). Of more than
  // c rows in a bucket the lowest have them: asked again, the same ones.
  Taken Take(std::span<const uint32_t> rows) const;

  struct Queried {
    // The row of each query, in a uniformly random order. No c + 1 are of one bucket. A row may
    // come more than once, a wanted one too: what is padding asks any row of its bucket.
    std::vector<uint32_t> rows;
    std::vector<uint32_t> unknown;  // as in Taken
  };
  // The queries for wanted rows, `count` of them: at least as many as Take gives places, and at
  // most count() (checked). Queries(keys) is enough for the rows of so many keys.
  Queried Draw(std::span<const uint32_t> rows, uint32_t count, RandomSource& random) const;

 private:
  QueryBuckets buckets_;
  uint32_t most_in_bucket_;
};

}  // namespace shoal::client

#endif  // SHOAL_SRC_CLIENT_VIRTUAL_PLACES_H_
