//! Enumerations and text patterns of this wire format: schema versions, categories, ids.

/// Supported schema version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaVersion {
    /// `2026-02-19.1`, in both of its published texts.
    V2026_02_19_1,
    /// `2026-02-20.1`.
    V2026_02_20_1,
}

impl SchemaVersion {
    /// All versions, oldest first.
    pub(super) const ALL: [Self; 2] = [Self::V2026_02_19_1, Self::V2026_02_20_1];

    /// Version as in an envelope.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::V2026_02_19_1 => "2026-02-19.1",
            Self::V2026_02_20_1 => "2026-02-20.1",
        }
    }

    /// Parses a supported version.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.as_str() == text)
    }
}

/// Event category.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    /// The plugin registers or sends a heartbeat.
    Connectivity,
    /// A match, map, round, warmup or pause begins or ends.
    Lifecycle,
    /// A player joins, leaves or changes.
    Player,
    /// A shot, a hit, a score.
    Combat,
    /// Specific to one game mode.
    Mode,
}

impl Category {
    /// All categories, in the contract's order.
    pub(super) const ALL: [Self; 5] =
        [Self::Connectivity, Self::Lifecycle, Self::Player, Self::Combat, Self::Mode];

    /// Category as in an envelope.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Connectivity => "connectivity",
            Self::Lifecycle => "lifecycle",
            Self::Player => "player",
            Self::Combat => "combat",
            Self::Mode => "mode",
        }
    }

    /// Parses a category.
    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == text)
    }
}

/// `^pixel_control\.(category)\.segment$`
pub(super) fn is_event_name(text: &str) -> bool {
    text.strip_prefix("pixel_control.")
        .and_then(|rest| rest.split_once('.'))
        .is_some_and(|(category, name)| Category::parse(category).is_some() && is_segment(name))
}

/// `^pc-evt-(category)-segment-[1-9][0-9]*$`
pub(super) fn is_event_id(text: &str) -> bool {
    let parts = text
        .strip_prefix("pc-evt-")
        .and_then(|rest| rest.split_once('-'))
        .and_then(|(category, rest)| Some((category, rest.split_once('-')?)));
    parts.is_some_and(|(category, (name, number))| {
        Category::parse(category).is_some()
            && is_segment(name)
            && !number.starts_with('0')
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// `^pc-idem-[a-f0-9]{40}$`
pub(super) fn is_idempotency_key(text: &str) -> bool {
    text.strip_prefix("pc-idem-").is_some_and(|hex| {
        hex.len() == 40 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// `[a-z0-9]+(?:_[a-z0-9]+)*`: lower-case letters and digits between single underscores.
fn is_segment(text: &str) -> bool {
    let mut after_word = false;
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' => after_word = true,
            b'_' if after_word => after_word = false,
            _ => return false,
        }
    }
    after_word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_words_between_single_underscores() {
        for good in ["a", "0", "maniaplanet_beginmatch", "a_b_c", "1_2"] {
            assert!(is_segment(good), "{good}");
        }
        for bad in ["", "_", "a_", "_a", "a__b", "A", "a-b", "a.b", "é", "a b", "a\n"] {
            assert!(!is_segment(bad), "{bad:?}");
        }
    }

    #[test]
    fn enum_names_round_trip() {
        for version in SchemaVersion::ALL {
            assert_eq!(SchemaVersion::parse(version.as_str()), Some(version));
        }
        for category in Category::ALL {
            assert_eq!(Category::parse(category.as_str()), Some(category));
        }
        assert_eq!(Category::parse("batch"), None);
    }
}
