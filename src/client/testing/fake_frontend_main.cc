// A fake frontend for clients in other languages: `fake_frontend_main PINS` writes the pins to the
// file PINS, prints its address, and serves a round until its standard input ends. The table has
// the keys key-0 to key-299.
#include <iostream>
#include <mutex>
#include <string>

#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/client/testing/tls_frontend.h"
#include "src/roster/roster.h"
#include "src/wire/text.h"

int main(int argc, char** argv) {
  using shoal::client::testing::TlsFrontend;
  SHOAL_CHECK(argc == 2);
  TlsFrontend server({.now_s = shoal::SystemClock().NowSeconds()});
  const auto pins = shoal::roster::PinsOf(server.frontend().roster().wire().roster());
  SHOAL_CHECK(pins.ok() && shoal::wire::WriteTextFile(argv[1], *pins).ok());
  {
    const std::lock_guard lock(server.mutex());
    server.frontend().OpenRound();
  }
  std::cout << server.address() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  return 0;
}
