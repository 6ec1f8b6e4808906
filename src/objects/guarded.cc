#include "objects/guarded.h"

#include <exception>
#include <string>

namespace unisono::objects {

void give_up(Communicator& communicator, Kind kind) {
  const auto abort = [&](const std::string& why) {
    if (communicator.status()) {
      communicator.abort("rank " + std::to_string(communicator.rank()) + " could not go on with " +
                         std::string(name_of(kind)) + ": " + why);
    }
  };
  try {
    throw;
  } catch (const Error& error) {
    abort(error.status().message());
    throw;
  } catch (const std::exception& error) {
    abort(error.what());
    fail(communicator, kind,
         Status(ErrorCode::kOutOfResources,
                "rank " + std::to_string(communicator.rank()) + " has not enough memory (" +
                    error.what() + "); lower ObjectOptions::staging_bytes or use a stream",
                communicator.rank()));
  } catch (...) {
    abort("a user's type threw");
    throw;
  }
}

}  // namespace unisono::objects
