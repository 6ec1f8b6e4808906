// Some of Fashion-MNIST, for commands that would take longer to read all of it than they train.
#pragma once

#include <string>

namespace unisono::test {

/// Where the package dataset-fashion-mnist has its files.
inline constexpr const char* kAllImages = "/usr/share/datasets/fashion-mnist";

/// A folder of IDX files with the first 6,000 images to train with and the first 1,000 to test
/// with; kept until the program ends. Null where the package is missing.
const std::string* few_images();

/// " --data FOLDER" with few_images(), for arguments of `unisono train` that name no data and no
/// model of text; else nothing.
std::string few_images_for(const std::string& arguments);

}  // namespace unisono::test
