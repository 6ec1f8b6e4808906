// What a rank asks the launcher's store, and what that answers.
#include "rendezvous/store_request.h"
#include "tests/fuzz/target.h"

namespace unisono::fuzz {
namespace {

using rendezvous::StoreRequest;

void fuzz_store_request(std::span<const std::byte> input) {
  const std::string_view bytes(reinterpret_cast<const char*>(input.data()), input.size());
  if (const auto request = rendezvous::request_from_bytes(bytes); request && *request) {
    const auto again = rendezvous::to_bytes(**request);
    require(again.has_value(), "a key or value above its limit");
    require(*again == bytes, "a question that is another one");
  }
  if (const auto answer = rendezvous::answer_from_bytes(bytes); answer && *answer) {
    require(rendezvous::store_answer(**answer) == bytes, "an answer that is another one");
  }
}

std::vector<Bytes> store_request_corpus() {
  std::vector<Bytes> corpus;
  for (const auto kind :
       {StoreRequest::Kind::kSet, StoreRequest::Kind::kGet, StoreRequest::Kind::kWait}) {
    const std::string value = kind == StoreRequest::Kind::kSet ? "value" : "";
    corpus.push_back(to_bytes(*rendezvous::to_bytes({kind, "key", value})));
  }
  corpus.push_back(to_bytes(rendezvous::store_answer("value")));
  corpus.push_back(to_bytes(rendezvous::store_refusal("it is full")));
  return corpus;
}

}  // namespace

void add_launcher_store(Targets* targets) {
  targets->push_back({"store_request", fuzz_store_request, store_request_corpus, 5000});
}

}  // namespace unisono::fuzz
