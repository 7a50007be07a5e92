//! Rows of a Parquet file, some hundred at a time.
//!
//! Memory is bounded by construction: pages are read one by one, and of every column no more than
//! [`ROWS_AT_ONCE`] cells are decoded at once, whatever the size of the file or its row groups.

use admit_core::json::Value;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::Type;

use super::source::Source;

/// Rows that are decoded at a time.
pub const ROWS_AT_ONCE: usize = 512;

/// Most columns of a file.
pub const COLUMNS_MAX: usize = 1_000;

/// Why rows cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file or a page of it is damaged.
    #[error("the parquet file is damaged or not one")]
    Damaged(#[source] ParquetError),
    /// A column has no plain JSON value.
    #[error(
        "column {column} is of type {found}; only integers, floats, booleans and texts can be streamed"
    )]
    ColumnType {
        /// The column.
        column: String,
        /// What it is.
        found: String,
    },
    /// Two columns have one name, or there are too many, or none.
    #[error("the columns cannot be a row: {0}")]
    Columns(String),
    /// A cell has no JSON value.
    #[error("row {row}, column {column}: {reason}")]
    Cell {
        /// The row in its file, from 0.
        row: u64,
        /// The column.
        column: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A column ends before the others.
    #[error("column {column} has fewer rows than the file says")]
    Short {
        /// The column.
        column: String,
    },
}

impl From<ParquetError> for RowsError {
    fn from(error: ParquetError) -> Self {
        Self::Damaged(error)
    }
}

/// How the cells of a column become JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float,
    Double,
    Text,
}

/// A column: its name and what it holds.
#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    kind: Kind,
    is_nullable: bool,
}

/// One part file, opened and understood; no row of it has been read yet.
pub struct Part {
    file: SerializedFileReader<Source>,
    columns: Vec<Column>,
}

impl Part {
    /// Opens a file and checks that every row of it can become JSON.
    ///
    /// # Errors
    /// When it is damaged, or has a column that cannot.
    pub fn open(file: impl Into<Source>) -> Result<Self, RowsError> {
        let file = SerializedFileReader::new(file.into())?;
        let schema = file.metadata().file_metadata().schema();
        let fields = schema.get_fields();
        if fields.is_empty() || fields.len() > COLUMNS_MAX {
            let reason = format!("there are {}, 1 to {COLUMNS_MAX} are allowed", fields.len());
            return Err(RowsError::Columns(reason));
        }
        let columns: Vec<Column> =
            fields.iter().map(|field| Column::of(field)).collect::<Result<_, _>>()?;
        for (place, column) in columns.iter().enumerate() {
            if columns[..place].iter().any(|earlier| earlier.name == column.name) {
                return Err(RowsError::Columns(format!("{} is there twice", column.name)));
            }
        }
        Ok(Self { file, columns })
    }

    /// How many rows it says it has.
    pub fn len(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or_default()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its columns by name.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Hands over every row from the row `first` on, with its number in the file, until `each` says
    /// `false`.
    ///
    /// # Errors
    /// At the first row that cannot be read; those before it were handed over.
    pub fn rows<E: From<RowsError>>(
        &self,
        first: u64,
        each: &mut dyn FnMut(u64, &Row<'_>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let mut begin = 0;
        for index in 0..self.file.num_row_groups() {
            let group = self.file.get_row_group(index).map_err(RowsError::from)?;
            let rows = u64::try_from(group.metadata().num_rows()).unwrap_or_default();
            let end = begin + rows;
            if end > first && !self.group(&*group, begin..end, first.max(begin), each)? {
                return Ok(());
            }
            begin = end;
        }
        Ok(())
    }

    fn group<E: From<RowsError>>(
        &self,
        group: &dyn RowGroupReader,
        all: std::ops::Range<u64>,
        first: u64,
        each: &mut dyn FnMut(u64, &Row<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for (index, column) in self.columns.iter().enumerate() {
            let reader = group.get_column_reader(index).map_err(RowsError::from)?;
            cells.push(Cells::new(column, reader, first - all.start)?);
        }
        let mut next = first;
        while next < all.end {
            let left = usize::try_from(all.end - next).unwrap_or(ROWS_AT_ONCE);
            let want = left.min(ROWS_AT_ONCE);
            for column in &mut cells {
                column.fill(want)?;
            }
            for _ in 0..want {
                let row = Row { cells: &cells };
                if !each(next, &row)? {
                    return Ok(false);
                }
                cells.iter_mut().for_each(Cells::advance);
                next += 1;
            }
        }
        Ok(true)
    }
}

impl Column {
    fn of(field: &Type) -> Result<Self, RowsError> {
        let info = field.get_basic_info();
        let refuse =
            |found: String| RowsError::ColumnType { column: info.name().to_owned(), found };
        if !field.is_primitive() {
            return Err(refuse("a group (list, map or struct)".to_owned()));
        }
        if info.repetition() == Repetition::REPEATED {
            return Err(refuse("a repeated value".to_owned()));
        }
        let physical = field.get_physical_type();
        let kind = kind(physical, info.logical_type_ref(), info.converted_type());
        let kind = kind.ok_or_else(|| {
            let as_what = match info.logical_type_ref() {
                Some(logical) => format!("{logical:?}"),
                None => format!("{}", info.converted_type()),
            };
            refuse(format!("{physical} ({as_what})"))
        })?;
        let is_nullable = info.repetition() == Repetition::OPTIONAL;
        Ok(Self { name: info.name().to_owned(), kind, is_nullable })
    }
}

/// What a column holds, by what the file says of it; `None` is what has no plain JSON value.
fn kind(
    physical: Physical,
    logical: Option<&LogicalType>,
    converted: ConvertedType,
) -> Option<Kind> {
    let is_plain = logical.is_none() && converted == ConvertedType::NONE;
    let is_signed = matches!(
        converted,
        ConvertedType::NONE
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64
    );
    let is_unsigned = matches!(
        converted,
        ConvertedType::UINT_8
            | ConvertedType::UINT_16
            | ConvertedType::UINT_32
            | ConvertedType::UINT_64
    );
    let signed = match logical {
        Some(LogicalType::Integer(int)) => Some(int.is_signed),
        // A column of which every cell is null.
        Some(LogicalType::Unknown) => Some(true),
        Some(_) => None,
        None => (is_signed || is_unsigned).then_some(is_signed),
    };
    let is_text = match logical {
        Some(logical) => {
            matches!(logical, LogicalType::String | LogicalType::Enum | LogicalType::Json)
        }
        None => {
            matches!(converted, ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON)
        }
    };
    match physical {
        Physical::BOOLEAN => is_plain.then_some(Kind::Bool),
        Physical::INT32 => signed.map(|signed| if signed { Kind::Int32 } else { Kind::UInt32 }),
        Physical::INT64 => signed.map(|signed| if signed { Kind::Int64 } else { Kind::UInt64 }),
        Physical::FLOAT => is_plain.then_some(Kind::Float),
        Physical::DOUBLE => is_plain.then_some(Kind::Double),
        Physical::BYTE_ARRAY => is_text.then_some(Kind::Text),
        Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => None,
    }
}

/// A row, to be looked at while it is handed over.
pub struct Row<'c> {
    cells: &'c [Cells],
}

impl<'c> Row<'c> {
    /// The value in the column of this number; its own number is for the error.
    ///
    /// # Errors
    /// When the cell has no JSON value.
    pub fn value(&self, column: usize, row: u64) -> Result<Value<'c>, RowsError> {
        let cells = &self.cells[column];
        cells.value().map_err(|reason| RowsError::Cell { row, column: cells.name.clone(), reason })
    }
}

/// The decoded cells of one column, and the reader that has the rest.
struct Cells {
    name: String,
    kind: Kind,
    is_nullable: bool,
    reader: Reader,
    levels: Vec<i16>,
    /// The row within what is decoded.
    row: usize,
    /// The value within what is decoded; nulls have none.
    at: usize,
}

enum Reader {
    Bool(Typed<parquet::data_type::BoolType>),
    Int32(Typed<parquet::data_type::Int32Type>),
    Int64(Typed<parquet::data_type::Int64Type>),
    Float(Typed<parquet::data_type::FloatType>),
    Double(Typed<parquet::data_type::DoubleType>),
    Text(Typed<parquet::data_type::ByteArrayType>),
}

struct Typed<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
}

impl<T: DataType> Typed<T> {
    fn skipped(mut reader: ColumnReaderImpl<T>, skip: usize) -> Result<Self, ParquetError> {
        let mut left = skip;
        while left > 0 {
            let skipped = reader.skip_records(left)?;
            if skipped == 0 {
                break;
            }
            left -= skipped;
        }
        Ok(Self { reader, values: Vec::new() })
    }

    /// Decodes `want` rows in place of those before; how many there were.
    fn fill(&mut self, want: usize, levels: &mut Vec<i16>) -> Result<usize, ParquetError> {
        self.values.clear();
        let mut rows = 0;
        while rows < want {
            let (read, ..) =
                self.reader.read_records(want - rows, Some(levels), None, &mut self.values)?;
            if read == 0 {
                break;
            }
            rows += read;
        }
        Ok(rows)
    }
}

impl Cells {
    fn new(column: &Column, reader: ColumnReader, skip: u64) -> Result<Self, RowsError> {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let reader = match reader {
            ColumnReader::BoolColumnReader(r) => Reader::Bool(Typed::skipped(r, skip)?),
            ColumnReader::Int32ColumnReader(r) => Reader::Int32(Typed::skipped(r, skip)?),
            ColumnReader::Int64ColumnReader(r) => Reader::Int64(Typed::skipped(r, skip)?),
            ColumnReader::FloatColumnReader(r) => Reader::Float(Typed::skipped(r, skip)?),
            ColumnReader::DoubleColumnReader(r) => Reader::Double(Typed::skipped(r, skip)?),
            ColumnReader::ByteArrayColumnReader(r) => Reader::Text(Typed::skipped(r, skip)?),
            ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
                let found = "a type the file's schema did not name".to_owned();
                return Err(RowsError::ColumnType { column: column.name.clone(), found });
            }
        };
        let Column { name, kind, is_nullable } = column.clone();
        Ok(Self { name, kind, is_nullable, reader, levels: Vec::new(), row: 0, at: 0 })
    }

    fn fill(&mut self, want: usize) -> Result<(), RowsError> {
        (self.row, self.at) = (0, 0);
        self.levels.clear();
        let levels = &mut self.levels;
        let rows = match &mut self.reader {
            Reader::Bool(typed) => typed.fill(want, levels),
            Reader::Int32(typed) => typed.fill(want, levels),
            Reader::Int64(typed) => typed.fill(want, levels),
            Reader::Float(typed) => typed.fill(want, levels),
            Reader::Double(typed) => typed.fill(want, levels),
            Reader::Text(typed) => typed.fill(want, levels),
        }?;
        let has_levels = !self.is_nullable || self.levels.len() >= want;
        if rows < want || !has_levels {
            return Err(RowsError::Short { column: self.name.clone() });
        }
        Ok(())
    }

    fn is_null(&self) -> bool {
        self.is_nullable && self.levels.get(self.row).copied().unwrap_or_default() == 0
    }

    fn advance(&mut self) {
        self.at += usize::from(!self.is_null());
        self.row += 1;
    }

    fn value(&self) -> Result<Value<'_>, &'static str> {
        const LOST: &str = "the page has fewer values than rows";
        if self.is_null() {
            return Ok(Value::Null);
        }
        let at = self.at;
        Ok(match &self.reader {
            Reader::Bool(typed) => (*typed.values.get(at).ok_or(LOST)?).into(),
            Reader::Int32(typed) => {
                let number = *typed.values.get(at).ok_or(LOST)?;
                if self.kind == Kind::UInt32 {
                    number.cast_unsigned().into()
                } else {
                    number.into()
                }
            }
            Reader::Int64(typed) => {
                let number = *typed.values.get(at).ok_or(LOST)?;
                if self.kind == Kind::UInt64 {
                    number.cast_unsigned().into()
                } else {
                    number.into()
                }
            }
            Reader::Float(typed) => finite(f64::from(*typed.values.get(at).ok_or(LOST)?))?,
            Reader::Double(typed) => finite(*typed.values.get(at).ok_or(LOST)?)?,
            Reader::Text(typed) => text(typed.values.get(at).ok_or(LOST)?)?,
        })
    }
}

fn finite(number: f64) -> Result<Value<'static>, &'static str> {
    if number.is_finite() { Ok(number.into()) } else { Err("NaN and infinity are not JSON") }
}

fn text(bytes: &ByteArray) -> Result<Value<'_>, &'static str> {
    std::str::from_utf8(bytes.data()).map(Value::from).map_err(|_| "the text is not UTF-8")
}
