// A heap that wipes freed memory, for processes that hold other people's secrets.
#ifndef SHOAL_SRC_STORAGE_WIPING_HEAP_H_
#define SHOAL_SRC_STORAGE_WIPING_HEAP_H_

namespace shoal {

// A program that calls this links operators new and delete that overwrite a whole block with zeros
// before it goes back to malloc: a vector that grew, a string of a message, a node of a hash table,
// the frame of a coroutine. The call itself makes OpenSSL wipe its allocations in the same way,
// among them its buffers of records.
//
// The cost is a write to memory that is mostly still in the cache. Not covered: the stack,
// registers, direct calls of malloc and free (Asio's frames of more than usual alignment), and
// mappings (PageBuffer wipes its own).
//
// Call this first in main, before OpenSSL has allocated anything (checked).
void WipeWhatIsFreed();

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_WIPING_HEAP_H_
