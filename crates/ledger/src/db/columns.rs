//! Typed access to the columns of a row.

use admit_core::{Millis, Seq};

/// A stored value that the ledger never writes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidValue(String);

impl InvalidValue {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// An unknown word in a column of a closed set of words.
    pub(crate) fn unknown(what: &str, word: &str) -> Self {
        Self(format!("unknown {what} {word:?}"))
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn into_message(self) -> String {
        self.0
    }
}

/// The columns of a row, by name.
pub(crate) trait Columns {
    type Error: From<InvalidValue>;

    /// A signed integer or NULL.
    fn int_opt(&self, column: &str) -> Result<Option<i64>, Self::Error>;

    /// A text or NULL.
    fn text_opt(&self, column: &str) -> Result<Option<String>, Self::Error>;

    /// Bytes or NULL.
    fn bytes_opt(&self, column: &str) -> Result<Option<Vec<u8>>, Self::Error>;

    /// A text with what is no UTF-8 in it replaced; empty if there is none.
    fn text_lossy(&self, column: &str) -> Result<String, Self::Error> {
        Ok(self.text_opt(column)?.unwrap_or_default())
    }

    fn int(&self, column: &str) -> Result<i64, Self::Error> {
        present(column, self.int_opt(column)?)
    }

    fn text(&self, column: &str) -> Result<String, Self::Error> {
        present(column, self.text_opt(column)?)
    }

    fn bytes(&self, column: &str) -> Result<Vec<u8>, Self::Error> {
        present(column, self.bytes_opt(column)?)
    }

    fn num_opt(&self, column: &str) -> Result<Option<u64>, Self::Error> {
        let unsigned = |number: i64| {
            let negative = || format!("negative value {number} in the unsigned column `{column}`");
            u64::try_from(number).map_err(|_| InvalidValue::new(negative()).into())
        };
        self.int_opt(column)?.map(unsigned).transpose()
    }

    fn num(&self, column: &str) -> Result<u64, Self::Error> {
        present(column, self.num_opt(column)?)
    }

    fn small_opt(&self, column: &str) -> Result<Option<u32>, Self::Error> {
        let small = |number: u64| {
            let large = || format!("value {number} in the column `{column}` exceeds 32 bits");
            u32::try_from(number).map_err(|_| InvalidValue::new(large()).into())
        };
        self.num_opt(column)?.map(small).transpose()
    }

    fn small(&self, column: &str) -> Result<u32, Self::Error> {
        present(column, self.small_opt(column)?)
    }

    fn flag(&self, column: &str) -> Result<bool, Self::Error> {
        Ok(self.int(column)? != 0)
    }

    fn seq_opt(&self, column: &str) -> Result<Option<Seq>, Self::Error> {
        Ok(self.num_opt(column)?.map(Seq))
    }

    fn seq(&self, column: &str) -> Result<Seq, Self::Error> {
        Ok(Seq(self.num(column)?))
    }

    fn millis_opt(&self, column: &str) -> Result<Option<Millis>, Self::Error> {
        Ok(self.int_opt(column)?.map(Millis))
    }

    fn millis(&self, column: &str) -> Result<Millis, Self::Error> {
        Ok(Millis(self.int(column)?))
    }

    fn bytes32_opt(&self, column: &str) -> Result<Option<[u8; 32]>, Self::Error> {
        let exact = |bytes: Vec<u8>| {
            let length = bytes.len();
            let wrong = || format!("{length} bytes in the column `{column}`, expected 32");
            bytes.try_into().map_err(|_| InvalidValue::new(wrong()).into())
        };
        self.bytes_opt(column)?.map(exact).transpose()
    }

    fn bytes32(&self, column: &str) -> Result<[u8; 32], Self::Error> {
        present(column, self.bytes32_opt(column)?)
    }
}

fn present<T, E: From<InvalidValue>>(column: &str, value: Option<T>) -> Result<T, E> {
    value.ok_or_else(|| InvalidValue::new(format!("NULL in the column `{column}`")).into())
}
