//! The file layer as SQLite calls it: a table of functions, and files that are two structures in one
//! piece of memory, ours first and the system's own behind it.
//!
//! Only the file of a log is wrapped. SQLite uses a file from one thread at a time, so nothing here is
//! locked.

use std::ffi::{CStr, c_int, c_void};
use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};
use std::{ptr, slice};

use rusqlite::Connection;
use rusqlite::ffi::{
    SQLITE_ERROR, SQLITE_FCNTL_JOURNAL_POINTER, SQLITE_FULL, SQLITE_IOERR_FSYNC,
    SQLITE_IOERR_WRITE, SQLITE_OK, SQLITE_OPEN_WAL, sqlite3_file, sqlite3_file_control,
    sqlite3_filename, sqlite3_int64, sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find,
    sqlite3_vfs_register,
};

use crate::mark::{Mark, NotMarked};
use crate::piece::Piece;

/// The layer's name, for whoever opens a database on it.
const NAME: &CStr = c"admit-log";

/// A disk with less room than this gets no zeros: what is left is for events.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// SQLite did not take the layer, or has none of its own to put it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotRegistered {
    /// What SQLite said.
    code: i32,
}

impl std::fmt::Display for NotRegistered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SQLite did not take the file layer of the log (code {})", self.code)
    }
}

impl std::error::Error for NotRegistered {}

/// Makes the layer known to SQLite, once for the process, and returns its name. An error stays.
pub(crate) fn register() -> Result<&'static CStr, NotRegistered> {
    static REGISTERED: OnceLock<Result<(), NotRegistered>> = OnceLock::new();
    (*REGISTERED.get_or_init(put_on_top)).map(|()| NAME)
}

/// The system's own layer. It is static in SQLite and never changes.
struct System(*mut sqlite3_vfs);

// SAFETY: the structure behind it is only read, and SQLite's own functions may be called from any thread.
unsafe impl Send for System {}
// SAFETY: the same.
unsafe impl Sync for System {}

static SYSTEM: OnceLock<System> = OnceLock::new();

fn put_on_top() -> Result<(), NotRegistered> {
    // SAFETY: a null name asks for the default; SQLite starts itself where it has not yet.
    let system = unsafe { sqlite3_vfs_find(ptr::null()) };
    if system.is_null() {
        return Err(NotRegistered { code: SQLITE_ERROR });
    }
    // SAFETY: what was found is registered, so it is valid and stays so.
    let own = unsafe { *system };
    SYSTEM.get_or_init(|| System(system));
    let ours = own_file_bytes();
    // Everything but opening is the system's, and finds here what it would find in its own structure.
    let layer = Box::leak(Box::new(sqlite3_vfs {
        szOsFile: own.szOsFile + ours,
        pNext: ptr::null_mut(),
        zName: NAME.as_ptr(),
        xOpen: Some(open),
        ..own
    }));
    // SAFETY: the structure and its name live as long as the process.
    match unsafe { sqlite3_vfs_register(layer, 0) } {
        SQLITE_OK => Ok(()),
        code => Err(NotRegistered { code }),
    }
}

/// The file of a log. The system's own file follows it in memory.
#[repr(C)]
struct LogFile {
    /// First, so that SQLite finds our functions.
    base: sqlite3_file,
    /// Ours from opening to closing.
    piece: *mut Piece,
}

fn own_file_bytes() -> c_int {
    c_int::try_from(size_of::<LogFile>()).expect("two pointers")
}

/// The functions of a log's file. The first version of the table has all that SQLite asks of one.
static METHODS: sqlite3_io_methods = sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Opens a file: a log as ours, everything else as the system does.
///
/// # Safety
/// As SQLite calls it: `file` has the bytes that the layer asked for.
unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(System(system)) = SYSTEM.get() else { return SQLITE_ERROR };
    // SAFETY: it is registered, see `put_on_top`.
    let Some(system_open) = (unsafe { **system }).xOpen else { return SQLITE_ERROR };
    if flags & SQLITE_OPEN_WAL == 0 {
        // SAFETY: `file` has more bytes than the system's layer asks for.
        return unsafe { system_open(*system, name, file, flags, out_flags) };
    }
    let log = file.cast::<LogFile>();
    // SAFETY: `file` has the bytes of a `LogFile`, and nothing is in them yet.
    unsafe {
        log.write(LogFile { base: sqlite3_file { pMethods: ptr::null() }, piece: ptr::null_mut() });
    }
    // SAFETY: behind ours are as many bytes as the system's layer asks for.
    let code = unsafe { system_open(*system, name, behind(file), flags, out_flags) };
    if code == SQLITE_OK {
        // SAFETY: written above. Without functions, which is how it stays after a failure, SQLite
        // does not close it.
        let log = unsafe { &mut *log };
        // SAFETY: SQLite gives a log's name, which ends with a zero.
        let path = unsafe { CStr::from_ptr(name) };
        log.piece = Box::into_raw(Box::new(Piece::of(path)));
        log.base.pMethods = &METHODS;
    }
    code
}

/// The system's own file behind a log's.
///
/// # Safety
/// `file` was made by [`open`].
unsafe fn behind(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: the memory is one piece that reaches beyond the `LogFile`.
    unsafe { file.cast::<LogFile>().add(1).cast() }
}

/// The functions of the system's own file.
///
/// # Safety
/// `file` was made by [`open`], which went well.
unsafe fn system_methods(file: *mut sqlite3_file) -> &'static sqlite3_io_methods {
    // SAFETY: a file that was opened has a table of functions, and those are static in SQLite.
    unsafe { &*(*behind(file)).pMethods }
}

/// What is collected for a file.
///
/// # Safety
/// `file` was made by [`open`], which went well, and nobody else uses it.
unsafe fn piece<'a>(file: *mut sqlite3_file) -> &'a mut Piece {
    // SAFETY: it is valid from opening to closing.
    unsafe { &mut *(*file.cast::<LogFile>()).piece }
}

/// Has the log of a connection mark each generation before a commit of it is durable. `false` where the
/// connection has no log on this layer.
pub(crate) fn attach(conn: &Connection, mark: &Arc<Mark>) -> bool {
    let mut file: *mut sqlite3_file = ptr::null_mut();
    // SAFETY: the connection is open and used by this thread alone; SQLite writes one pointer.
    let code = unsafe {
        sqlite3_file_control(
            conn.handle(),
            c"main".as_ptr(),
            SQLITE_FCNTL_JOURNAL_POINTER,
            (&raw mut file).cast(),
        )
    };
    if code != SQLITE_OK || file.is_null() {
        return false;
    }
    // SAFETY: a file of SQLite begins with its table of functions, null while it is not open.
    if !ptr::eq(unsafe { (*file).pMethods }, &METHODS) {
        return false;
    }
    // SAFETY: our functions, so `open` made it; no other call uses it while the connection is borrowed here.
    unsafe { piece(file) }.mark = Some(Arc::clone(mark));
    true
}

/// Marks the generation of the frames that are about to be synced. A failure is that of the sync: nothing
/// of them is written, and the commit fails.
///
/// # Safety
/// As for [`piece`].
unsafe fn mark_generation(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as the caller promises.
    let piece = unsafe { piece(file) };
    match piece.mark_generation() {
        Ok(()) => SQLITE_OK,
        Err(NotMarked::Synced) => piece.fail(SQLITE_IOERR_FSYNC),
        Err(NotMarked::Written(error)) if error.kind() == ErrorKind::StorageFull => {
            piece.fail(SQLITE_FULL)
        }
        Err(NotMarked::Written(_)) => piece.fail(SQLITE_IOERR_WRITE),
    }
}

/// Writes what is collected.
///
/// # Safety
/// As for [`piece`].
unsafe fn write_out(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as the caller promises.
    let (piece, methods) = unsafe { (piece(file), system_methods(file)) };
    let Some(system_write) = methods.xWrite else { return SQLITE_ERROR };
    piece.write_out(|at, bytes| {
        // SAFETY: the system's own file with bytes that are ours.
        unsafe { system_write(behind(file), bytes.as_ptr().cast(), step_len(bytes), at) }
    })
}

fn step_len(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).expect("a step is far smaller")
}

/// Marks the generation, writes what is collected, and zeros ahead of what comes next.
///
/// # Safety
/// As for [`piece`].
unsafe fn write_ahead(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as the caller promises.
    let marked = unsafe { mark_generation(file) };
    if marked != SQLITE_OK {
        return marked;
    }
    // SAFETY: the same.
    let code = unsafe { write_out(file) };
    if code != SQLITE_OK {
        return code;
    }
    // SAFETY: the same.
    let (piece, methods) = unsafe { (piece(file), system_methods(file)) };
    let (Some(system_write), Some(system_size)) = (methods.xWrite, methods.xFileSize) else {
        return SQLITE_ERROR;
    };
    let len = || {
        let mut len = 0;
        // SAFETY: the system's own file, and a place for its length.
        let code = unsafe { system_size(behind(file), &raw mut len) };
        (code == SQLITE_OK).then_some(len)
    };
    piece.reach_ahead(len, has_room, |at, zeros| {
        // SAFETY: the system's own file with bytes that are ours.
        unsafe { system_write(behind(file), zeros.as_ptr().cast(), step_len(zeros), at) }
    });
    SQLITE_OK
}

/// Whether the disk of a file is far from full.
fn has_room(path: &CStr) -> bool {
    rustix::fs::statvfs(path)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM_BYTES_MIN)
}

/// Collects what follows what is collected; anything else makes that due first.
///
/// # Safety
/// As SQLite calls it.
unsafe extern "C" fn write(
    file: *mut sqlite3_file,
    bytes: *const c_void,
    len: c_int,
    at: sqlite3_int64,
) -> c_int {
    let Ok(count) = usize::try_from(len) else { return SQLITE_ERROR };
    // SAFETY: SQLite hands over that many bytes.
    let given = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), count) };
    // SAFETY: a file of ours, on the only thread that uses it.
    unsafe { piece(file) }.note_generation(at, given);
    // SAFETY: a file of ours, on the only thread that uses it.
    if unsafe { piece(file) }.take(at, given) {
        return SQLITE_OK;
    }
    // SAFETY: the same.
    let code = unsafe { write_out(file) };
    // SAFETY: the same.
    if code != SQLITE_OK || unsafe { piece(file) }.take(at, given) {
        return code;
    }
    // Larger than anything that is collected.
    // SAFETY: the same.
    let Some(system_write) = (unsafe { system_methods(file) }).xWrite else { return SQLITE_ERROR };
    // SAFETY: handed on as it came.
    unsafe { system_write(behind(file), bytes, len, at) }
}

/// Writes what is collected, and forgets how long the file is.
///
/// # Safety
/// As for [`piece`].
unsafe fn cut(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { piece(file) }.cut();
    // SAFETY: the same.
    unsafe { write_out(file) }
}

/// Closes the file. What is collected then was never synced; it is written as SQLite would have.
///
/// # Safety
/// As SQLite calls it, and not again.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: a file of ours, on the only thread that uses it.
    let written = unsafe { write_out(file) };
    // SAFETY: it came from a box and is used no more.
    drop(unsafe { Box::from_raw((*file.cast::<LogFile>()).piece) });
    // SAFETY: the file is still open.
    let Some(system_close) = (unsafe { system_methods(file) }).xClose else { return SQLITE_ERROR };
    // SAFETY: once for each that was opened.
    match unsafe { system_close(behind(file)) } {
        SQLITE_OK => written,
        code => code,
    }
}

/// Functions that hand a call on to the system's own file. Those that look at the file, or promise
/// something about it, have what is collected written first.
macro_rules! handed_on {
    ($($(#[doc = $doc:literal])+ $name:ident $($after:ident)? => $method:ident($($arg:ident: $type:ty),*);)+) => {$(
        $(#[doc = $doc])+
        ///
        /// # Safety
        /// As SQLite calls it.
        unsafe extern "C" fn $name(file: *mut sqlite3_file, $($arg: $type),*) -> c_int {
            $(
                // SAFETY: a file of ours, on the only thread that uses it.
                let code = unsafe { $after(file) };
                if code != SQLITE_OK {
                    return code;
                }
            )?
            // SAFETY: the same.
            match (unsafe { system_methods(file) }).$method {
                // SAFETY: handed on as it came.
                Some(method) => unsafe { method(behind(file), $($arg),*) },
                None => SQLITE_ERROR,
            }
        }
    )+};
}

handed_on! {
    /// Reads from the file.
    read write_out => xRead(bytes: *mut c_void, len: c_int, at: sqlite3_int64);
    /// Cuts the file.
    truncate cut => xTruncate(len: sqlite3_int64);
    /// Brings everything to disk: where a commit is written.
    sync write_ahead => xSync(flags: c_int);
    /// How long the file is.
    file_size write_out => xFileSize(len: *mut sqlite3_int64);
    /// Locks the file.
    lock => xLock(level: c_int);
    /// Unlocks the file.
    unlock => xUnlock(level: c_int);
    /// Whether somebody holds a lock.
    check_reserved_lock => xCheckReservedLock(found: *mut c_int);
    /// Anything else that is asked of a file.
    file_control write_out => xFileControl(what: c_int, argument: *mut c_void);
    /// The smallest piece that the disk writes.
    sector_size => xSectorSize();
    /// What the disk promises.
    device_characteristics => xDeviceCharacteristics();
}
