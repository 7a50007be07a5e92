//! Rows of a Parquet file, decoded in batches.
//!
//! Memory is bounded: pages are read one by one, and at most [`ROWS_AT_ONCE`] cells per column are
//! decoded at once, whatever the size of the file or its row groups.

use admit_core::json::Value;
use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader as _, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use parquet::schema::types::Type;

use super::source::Source;

/// Rows decoded per batch.
pub const ROWS_AT_ONCE: usize = 512;

/// Maximum columns of a file.
pub const COLUMNS_MAX: usize = 1_000;

/// Error of reading rows.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The file or a page of it is damaged.
    #[error("the parquet file is damaged or not one")]
    Damaged(#[source] ParquetError),
    /// A column type has no JSON equivalent.
    #[error(
        "column {column} is of type {found}; only integers, floats, booleans and texts can be streamed"
    )]
    ColumnType {
        /// The column.
        column: String,
        /// Its type.
        found: String,
    },
    /// Duplicate column names, or too many or no columns.
    #[error("invalid columns: {0}")]
    Columns(String),
    /// A cell has no JSON value.
    #[error("row {row}, column {column}: {reason}")]
    Cell {
        /// The row in its file, from 0.
        row: u64,
        /// The column.
        column: String,
        /// The reason.
        reason: &'static str,
    },
    /// A column has too few rows.
    #[error("column {column} has fewer rows than the file's metadata")]
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

/// JSON conversion of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnKind {
    Bool,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float,
    Double,
    Text,
}

/// Name and type of a column.
#[derive(Clone, Debug)]
pub struct PackColumn {
    name: String,
    kind: ColumnKind,
    is_nullable: bool,
}

/// An open part file with a checked schema; no row has been read.
pub struct PartReader {
    file: SerializedFileReader<Source>,
    columns: Vec<PackColumn>,
}

impl PartReader {
    /// Opens a file and checks that every column has a JSON equivalent.
    ///
    /// # Errors
    /// When it is damaged, or a column has none.
    pub fn open(file: impl Into<Source>) -> Result<Self, RowsError> {
        let file = SerializedFileReader::new(file.into())?;
        let schema = file.metadata().file_metadata().schema();
        let fields = schema.get_fields();
        if fields.is_empty() || fields.len() > COLUMNS_MAX {
            let reason = format!("{} columns, 1 to {COLUMNS_MAX} are supported", fields.len());
            return Err(RowsError::Columns(reason));
        }
        let columns: Vec<PackColumn> =
            fields.iter().map(|field| PackColumn::of(field)).collect::<Result<_, _>>()?;
        for (index, column) in columns.iter().enumerate() {
            if columns[..index].iter().any(|earlier| earlier.name == column.name) {
                return Err(RowsError::Columns(format!("duplicate column {}", column.name)));
            }
        }
        Ok(Self { file, columns })
    }

    /// Number of rows, from its metadata.
    pub fn len(&self) -> u64 {
        u64::try_from(self.file.metadata().file_metadata().num_rows()).unwrap_or_default()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names of its columns.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    /// Calls `each` with every row from `first` on and its number in the file, until `each` returns
    /// `false`.
    ///
    /// # Errors
    /// At the first unreadable row; `each` was called for those before it.
    pub fn rows<E: From<RowsError>>(
        &self,
        first: u64,
        each: &mut dyn FnMut(u64, &PackRow<'_>) -> Result<bool, E>,
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
        each: &mut dyn FnMut(u64, &PackRow<'_>) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut cells = Vec::with_capacity(self.columns.len());
        for (index, column) in self.columns.iter().enumerate() {
            let reader = group.get_column_reader(index).map_err(RowsError::from)?;
            cells.push(ColumnCells::new(column, reader, first - all.start)?);
        }
        let mut next = first;
        while next < all.end {
            let left = usize::try_from(all.end - next).unwrap_or(ROWS_AT_ONCE);
            let want = left.min(ROWS_AT_ONCE);
            for column in &mut cells {
                column.fill(want)?;
            }
            for _ in 0..want {
                let row = PackRow { cells: &cells };
                if !each(next, &row)? {
                    return Ok(false);
                }
                cells.iter_mut().for_each(ColumnCells::advance);
                next += 1;
            }
        }
        Ok(true)
    }
}

impl PackColumn {
    fn of(field: &Type) -> Result<Self, RowsError> {
        let info = field.get_basic_info();
        let type_error =
            |found: String| RowsError::ColumnType { column: info.name().to_owned(), found };
        if !field.is_primitive() {
            return Err(type_error("a group (list, map or struct)".to_owned()));
        }
        if info.repetition() == Repetition::REPEATED {
            return Err(type_error("a repeated value".to_owned()));
        }
        let physical = field.get_physical_type();
        let kind = kind(physical, info.logical_type_ref(), info.converted_type());
        let kind = kind.ok_or_else(|| {
            let annotation = match info.logical_type_ref() {
                Some(logical) => format!("{logical:?}"),
                None => format!("{}", info.converted_type()),
            };
            type_error(format!("{physical} ({annotation})"))
        })?;
        let is_nullable = info.repetition() == Repetition::OPTIONAL;
        Ok(Self { name: info.name().to_owned(), kind, is_nullable })
    }
}

/// The conversion of a column by its Parquet type; `None` if it has no JSON equivalent.
fn kind(
    physical: Physical,
    logical: Option<&LogicalType>,
    converted: ConvertedType,
) -> Option<ColumnKind> {
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
        // A column with only nulls.
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
        Physical::BOOLEAN => is_plain.then_some(ColumnKind::Bool),
        Physical::INT32 => {
            signed.map(|signed| if signed { ColumnKind::Int32 } else { ColumnKind::UInt32 })
        }
        Physical::INT64 => {
            signed.map(|signed| if signed { ColumnKind::Int64 } else { ColumnKind::UInt64 })
        }
        Physical::FLOAT => is_plain.then_some(ColumnKind::Float),
        Physical::DOUBLE => is_plain.then_some(ColumnKind::Double),
        Physical::BYTE_ARRAY => is_text.then_some(ColumnKind::Text),
        Physical::INT96 | Physical::FIXED_LEN_BYTE_ARRAY => None,
    }
}

/// A row, valid during the callback.
pub struct PackRow<'c> {
    cells: &'c [ColumnCells],
}

impl<'c> PackRow<'c> {
    /// The value in this column; `row` is for the error.
    ///
    /// # Errors
    /// When the cell has no JSON value.
    pub fn value(&self, column: usize, row: u64) -> Result<Value<'c>, RowsError> {
        let cells = &self.cells[column];
        cells.value().map_err(|reason| RowsError::Cell { row, column: cells.name.clone(), reason })
    }
}

/// Decoded cells of one column, and its reader.
struct ColumnCells {
    name: String,
    kind: ColumnKind,
    is_nullable: bool,
    reader: CellReader,
    levels: Vec<i16>,
    /// Row index in the batch.
    row: usize,
    /// Value index in the batch; nulls have none.
    at: usize,
}

enum CellReader {
    Bool(TypedColumn<parquet::data_type::BoolType>),
    Int32(TypedColumn<parquet::data_type::Int32Type>),
    Int64(TypedColumn<parquet::data_type::Int64Type>),
    Float(TypedColumn<parquet::data_type::FloatType>),
    Double(TypedColumn<parquet::data_type::DoubleType>),
    Text(TypedColumn<parquet::data_type::ByteArrayType>),
}

struct TypedColumn<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
}

impl<T: DataType> TypedColumn<T> {
    fn skip_rows(mut reader: ColumnReaderImpl<T>, skip: usize) -> Result<Self, ParquetError> {
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

    /// Decodes up to `want` rows, replacing the previous batch. Returns the number of rows.
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

impl ColumnCells {
    fn new(column: &PackColumn, reader: ColumnReader, skip: u64) -> Result<Self, RowsError> {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let reader = match reader {
            ColumnReader::BoolColumnReader(r) => CellReader::Bool(TypedColumn::skip_rows(r, skip)?),
            ColumnReader::Int32ColumnReader(r) => {
                CellReader::Int32(TypedColumn::skip_rows(r, skip)?)
            }
            ColumnReader::Int64ColumnReader(r) => {
                CellReader::Int64(TypedColumn::skip_rows(r, skip)?)
            }
            ColumnReader::FloatColumnReader(r) => {
                CellReader::Float(TypedColumn::skip_rows(r, skip)?)
            }
            ColumnReader::DoubleColumnReader(r) => {
                CellReader::Double(TypedColumn::skip_rows(r, skip)?)
            }
            ColumnReader::ByteArrayColumnReader(r) => {
                CellReader::Text(TypedColumn::skip_rows(r, skip)?)
            }
            ColumnReader::Int96ColumnReader(_) | ColumnReader::FixedLenByteArrayColumnReader(_) => {
                let found = "a type not in the file's schema".to_owned();
                return Err(RowsError::ColumnType { column: column.name.clone(), found });
            }
        };
        let PackColumn { name, kind, is_nullable } = column.clone();
        Ok(Self { name, kind, is_nullable, reader, levels: Vec::new(), row: 0, at: 0 })
    }

    fn fill(&mut self, want: usize) -> Result<(), RowsError> {
        (self.row, self.at) = (0, 0);
        self.levels.clear();
        let levels = &mut self.levels;
        let rows = match &mut self.reader {
            CellReader::Bool(typed) => typed.fill(want, levels),
            CellReader::Int32(typed) => typed.fill(want, levels),
            CellReader::Int64(typed) => typed.fill(want, levels),
            CellReader::Float(typed) => typed.fill(want, levels),
            CellReader::Double(typed) => typed.fill(want, levels),
            CellReader::Text(typed) => typed.fill(want, levels),
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
        const MISSING_VALUE: &str = "the page has fewer values than rows";
        if self.is_null() {
            return Ok(Value::Null);
        }
        let at = self.at;
        Ok(match &self.reader {
            CellReader::Bool(typed) => (*typed.values.get(at).ok_or(MISSING_VALUE)?).into(),
            CellReader::Int32(typed) => {
                let number = *typed.values.get(at).ok_or(MISSING_VALUE)?;
                if self.kind == ColumnKind::UInt32 {
                    number.cast_unsigned().into()
                } else {
                    number.into()
                }
            }
            CellReader::Int64(typed) => {
                let number = *typed.values.get(at).ok_or(MISSING_VALUE)?;
                if self.kind == ColumnKind::UInt64 {
                    number.cast_unsigned().into()
                } else {
                    number.into()
                }
            }
            CellReader::Float(typed) => {
                finite(f64::from(*typed.values.get(at).ok_or(MISSING_VALUE)?))?
            }
            CellReader::Double(typed) => finite(*typed.values.get(at).ok_or(MISSING_VALUE)?)?,
            CellReader::Text(typed) => text(typed.values.get(at).ok_or(MISSING_VALUE)?)?,
        })
    }
}

fn finite(number: f64) -> Result<Value<'static>, &'static str> {
    if number.is_finite() { Ok(number.into()) } else { Err("NaN and infinity are not JSON") }
}

fn text(bytes: &ByteArray) -> Result<Value<'_>, &'static str> {
    std::str::from_utf8(bytes.data()).map(Value::from).map_err(|_| "the text is not UTF-8")
}
