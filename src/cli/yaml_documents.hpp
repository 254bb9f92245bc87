// What yaml-cpp says of a text before a tree is built: where its documents start. YAML::LoadAll cannot be asked first: at a
// stray comma it finds one empty document after another, for ever.
#pragma once

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cstddef>

namespace fencegate::cli {

class document_starts : public YAML::EventHandler {
 public:
  YAML::Mark last;
  std::size_t count = 0;

  void OnDocumentStart(const YAML::Mark& mark) override {
    last = mark;
    ++count;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

}  // namespace fencegate::cli
