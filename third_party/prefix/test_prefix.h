// As library_prefix.h, for tests.
#include "third_party/prefix/library_prefix.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
