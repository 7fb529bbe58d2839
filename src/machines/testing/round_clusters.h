// The links among the machines of a party, a cluster for each of its rounds.
#ifndef SHOAL_SRC_MACHINES_TESTING_ROUND_CLUSTERS_H_
#define SHOAL_SRC_MACHINES_TESTING_ROUND_CLUSTERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "src/base/bytes.h"
#include "src/base/testing/test_random.h"
#include "src/machines/machines.h"
#include "src/machines/testing/local_cluster.h"
#include "src/parallel/mutex.h"

namespace shoal::machines::testing {

// Thread-safe.
class RoundClusters {
 public:
  explicit RoundClusters(uint32_t machines) : machines_(machines) {}

  // The seal's key of machines that every round, and a party's control, derive theirs from.
  static Seed Key(const Digest& id) { return RoundKey(Bytes(32, 9), id, {}); }

  // A machine's side of the round. Keeps the round's cluster.
  std::shared_ptr<Machines> Join(uint32_t rank, const Digest& id) {
    std::shared_ptr<LocalCluster> cluster;
    {
      const MutexLock lock(mutex_);
      std::shared_ptr<LocalCluster>& known = clusters_[id];
      if (known == nullptr) {
        known = std::make_shared<LocalCluster>(machines_);
        if (on_cluster) on_cluster(*known);
      }
      cluster = known;
    }
    auto side = std::make_shared<Side>(std::move(cluster), rank, id);
    Machines* const machines = &side->machines;
    return {std::move(side), machines};
  }

  // Called once for every round's cluster; to be set before the first one. May be empty.
  std::function<void(LocalCluster&)> on_cluster;

 private:
  struct Side {
    Side(std::shared_ptr<LocalCluster> of, uint32_t rank, const Digest& id)
        : cluster(std::move(of)),
          link(cluster->Join(rank)),
          random(rank + 77),
          machines(link.transport.get(), Key(id), link.clock, &random, cluster->options()) {}
    std::shared_ptr<LocalCluster> cluster;
    LocalCluster::Joined link;
    ::shoal::testing::TestRandom random;
    Machines machines;
  };

  const uint32_t machines_;
  Mutex mutex_;
  std::map<Digest, std::shared_ptr<LocalCluster>> clusters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace shoal::machines::testing

#endif  // SHOAL_SRC_MACHINES_TESTING_ROUND_CLUSTERS_H_
