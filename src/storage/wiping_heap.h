// A heap that wipes what is given back to it, for processes that hold secrets of others.
#ifndef SHOAL_SRC_STORAGE_WIPING_HEAP_H_
#define SHOAL_SRC_STORAGE_WIPING_HEAP_H_

namespace shoal {

// A program that calls this links operators new and delete whose delete overwrites the whole block
// with zeros before it goes back to malloc: a vector that grew, a string of a message, a node of a
// hash table, the frame of a coroutine. The call itself makes OpenSSL's allocations wiped in the
// same way, its buffers of records among them; without the call they stay as OpenSSL has them.
//
// The cost is a write to memory that is mostly still in the cache. Not covered: the stack,
// registers, what calls malloc and free directly (Asio's frames of more than usual alignment), and
// mappings (PageBuffer wipes its own).
//
// First in main: before OpenSSL has allocated anything (checked).
void WipeWhatIsFreed();

}  // namespace shoal

#endif  // SHOAL_SRC_STORAGE_WIPING_HEAP_H_
