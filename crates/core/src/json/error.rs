//! JSON errors: rejected input, and values without a canonical form.

/// Reason and offset of input rejected by [`parse`](super::parse()).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The text is longer than [`Limits::bytes_max`](super::Limits::bytes_max).
    #[error("text is larger than {bytes_max} bytes, refused at byte {at}")]
    TooLarge {
        /// The limit that was hit.
        bytes_max: usize,
        /// Offset of the first byte over the limit.
        at: usize,
    },
    /// Arrays and objects nest deeper than [`Limits::depth_max`](super::Limits::depth_max).
    #[error("nested deeper than {depth_max} levels at byte {at}")]
    TooDeep {
        /// The limit that was hit.
        depth_max: usize,
        /// Offset of the bracket that opens the level too many.
        at: usize,
    },
    /// The text starts with a byte order mark.
    #[error("text starts with a byte order mark at byte {at}")]
    ByteOrderMark {
        /// Always 0.
        at: usize,
    },
    /// The bytes are not UTF-8.
    #[error("invalid utf-8 at byte {at}")]
    InvalidUtf8 {
        /// Offset of the first byte that is not part of a character.
        at: usize,
    },
    /// The text ends before the value does.
    #[error("expected {what}, found the end of the text at byte {at}")]
    UnexpectedEnd {
        /// Missing token.
        what: &'static str,
        /// The length of the text.
        at: usize,
    },
    /// Another byte where the grammar requires `what`.
    #[error("expected {what} at byte {at}")]
    Expected {
        /// Expected token.
        what: &'static str,
        /// Offset of the unexpected byte.
        at: usize,
    },
    /// A value is followed by more than white space.
    #[error("expected the end of the text at byte {at}")]
    TrailingBytes {
        /// Offset of the first byte too many.
        at: usize,
    },
    /// A number such as `01`.
    #[error("number has a leading zero at byte {at}")]
    LeadingZero {
        /// Offset of the zero.
        at: usize,
    },
    /// An integer has more than [`INTEGER_DIGITS_MAX`](super::INTEGER_DIGITS_MAX) digits.
    #[error("integer has more than {digits_max} digits at byte {at}")]
    IntegerTooLong {
        /// The limit that was hit.
        digits_max: usize,
        /// Offset of the number.
        at: usize,
    },
    /// A number such as `1e400`.
    #[error("number overflows a double at byte {at}")]
    NumberOverflow {
        /// Offset of the number.
        at: usize,
    },
    /// `NaN`, `Infinity` or `-Infinity`, which some writers emit and no reader must accept.
    #[error("nan and infinity are not json at byte {at}")]
    NumberNotFinite {
        /// Offset of the word.
        at: usize,
    },
    /// An unescaped control character in a string.
    #[error("control character {byte:#04x} must be escaped at byte {at}")]
    ControlCharacter {
        /// The character.
        byte: u8,
        /// Its offset.
        at: usize,
    },
    /// An unknown escape sequence.
    #[error("unknown escape at byte {at}")]
    UnknownEscape {
        /// Offset of the backslash.
        at: usize,
    },
    /// A lone surrogate.
    #[error("lone surrogate escape at byte {at}")]
    LoneSurrogate {
        /// Offset of the backslash.
        at: usize,
    },
}

impl JsonError {
    /// Stable name of the reason, for replies, metrics and tests.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "too_large",
            Self::TooDeep { .. } => "too_deep",
            Self::ByteOrderMark { .. } => "byte_order_mark",
            Self::InvalidUtf8 { .. } => "invalid_utf8",
            Self::UnexpectedEnd { .. } => "unexpected_end",
            Self::Expected { .. } => "expected",
            Self::TrailingBytes { .. } => "trailing_bytes",
            Self::LeadingZero { .. } => "leading_zero",
            Self::IntegerTooLong { .. } => "integer_too_long",
            Self::NumberOverflow { .. } => "number_overflow",
            Self::NumberNotFinite { .. } => "number_not_finite",
            Self::ControlCharacter { .. } => "control_character",
            Self::UnknownEscape { .. } => "unknown_escape",
            Self::LoneSurrogate { .. } => "lone_surrogate",
        }
    }

    /// Byte offset of the error.
    pub fn at(&self) -> usize {
        match *self {
            Self::TooLarge { at, .. }
            | Self::TooDeep { at, .. }
            | Self::ByteOrderMark { at }
            | Self::InvalidUtf8 { at }
            | Self::UnexpectedEnd { at, .. }
            | Self::Expected { at, .. }
            | Self::TrailingBytes { at }
            | Self::LeadingZero { at }
            | Self::IntegerTooLong { at, .. }
            | Self::NumberOverflow { at }
            | Self::NumberNotFinite { at }
            | Self::ControlCharacter { at, .. }
            | Self::UnknownEscape { at }
            | Self::LoneSurrogate { at } => at,
        }
    }
}

/// Reason why [`canonical`](super::canonical()) cannot write a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// An object names a key twice, which the `jcs` form does not allow.
    #[error("key {key:?} is repeated")]
    RepeatedKey {
        /// The key.
        key: String,
    },
    /// An integer that readers with doubles may confuse with its neighbour; `jcs` form only.
    #[error("integer {digits} is outside the safe range of ±(2^53 - 1)")]
    UnsafeInteger {
        /// The integer, cut after 40 digits.
        digits: String,
    },
    /// A float that is NaN or infinite. Only values built in code can hold one.
    #[error("a number is not finite")]
    NotFinite,
}

impl CanonicalError {
    /// Stable name of the reason, for replies, metrics and tests.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RepeatedKey { .. } => "repeated_key",
            Self::UnsafeInteger { .. } => "unsafe_integer",
            Self::NotFinite => "not_finite",
        }
    }
}
