#include "src/pir/pages.h"

#include "src/base/status_macros.h"
#include "src/storage/memory.h"

namespace shoal::pir {

absl::StatusOr<PageBuffer> AllocatePages(uint64_t bytes, absl::string_view what) {
  SHOAL_RETURN_IF_ERROR(CheckMemory(bytes, what));
  auto pages = PageBuffer::Create(bytes, PageBuffer::Content::kPublic);
  return pages.ok() ? std::move(pages) : Annotate(pages.status(), what);
}

}  // namespace shoal::pir
