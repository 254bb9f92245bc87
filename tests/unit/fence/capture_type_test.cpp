#include "fence/capture_type.hpp"

#include <gtest/gtest.h>

namespace fencegate::fence {
namespace {

using type = capture_type;

// "-" for none.
std::string spelled(type what, std::string_view value) { return canonical(what, value).value_or("-"); }

TEST(CaptureType, AnIntegerHasOneSpelling) {
  for (const auto* value : {"7", "07", "0000000000000000000000000000007"})
    EXPECT_EQ(spelled(type::integer, value), "7");
  for (const auto* value : {"0", "-0", "00", "-00"}) EXPECT_EQ(spelled(type::integer, value), "0");
  EXPECT_EQ(spelled(type::integer, "-07"), "-7");
  EXPECT_EQ(spelled(type::integer, "9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(spelled(type::integer, "-9223372036854775808"), "-9223372036854775808");
  for (const auto* value : {"", "-", "+7", "--7", " 7", "7 ", "7.0", "7e0", "0x7", "1_0", "7a", "9223372036854775808",
                            "-9223372036854775809", "\xD9\xA7"})
    EXPECT_EQ(spelled(type::integer, value), "-") << value;
}

TEST(CaptureType, AUuidHasOneSpelling) {
  constexpr std::string_view one = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
  for (const auto* value : {"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                            "a0eebc999c0b4ef8bb6d6bb9bd380a11", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
                            "{A0eebc999c0b4ef8bb6d6bb9bd380a11}", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
                            "a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11"})
    EXPECT_EQ(spelled(type::uuid, value), one) << value;
  for (const auto* value : {"", "{}", "{", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
                            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111", "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11",
                            "-a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc999c0b4ef8bb6d6bb9bd380a11-",
                            "a0e-ebc999c0b4ef8bb6d6bb9bd380a11", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "{{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}}",
                            "urn:uuid:a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "g0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"})
    EXPECT_EQ(spelled(type::uuid, value), "-") << value;
}

TEST(CaptureType, ASlugHasNoCase) {
  EXPECT_EQ(spelled(type::slug, "About-Us_2"), "about-us_2");
  for (const auto* value : {"", "a b", "a.b", "a/b", "a+b", "a%b", "\xC3\xA9"})
    EXPECT_EQ(spelled(type::slug, value), "-");
}

TEST(CaptureType, ATextIsWhatItIs) { EXPECT_EQ(spelled(type::text, "07 A"), "07 A"); }

TEST(CaptureType, WhatIsCanonicalStaysSo) {
  for (const auto what : {type::integer, type::uuid, type::slug})
    for (const auto* value : {"0", "-7", "42", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "about_us"})
      if (const auto once = canonical(what, value)) {
        EXPECT_EQ(canonical(what, *once), once);
      }
}

}  // namespace
}  // namespace fencegate::fence
