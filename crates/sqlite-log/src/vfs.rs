//! SQLite VFS: a table of functions, and file structures that contain our structure followed by
//! that of the system VFS.
//!
//! Only WAL files are wrapped. SQLite uses a file from one thread at a time, so no locks are
//! needed.

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

use crate::mark::{Mark, MarkError};
use crate::write_buffer::WriteBuffer;

/// Name of the VFS.
const NAME: &CStr = c"admit-log";

/// Minimum free disk space for preallocation: the rest is for events.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// SQLite rejected the VFS, or has no default VFS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterError {
    /// SQLite result code.
    code: i32,
}

impl std::fmt::Display for RegisterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SQLite rejected the WAL VFS (code {})", self.code)
    }
}

impl std::error::Error for RegisterError {}

/// Registers the VFS with SQLite, once per process, and returns its name. A failure is permanent.
pub(crate) fn register() -> Result<&'static CStr, RegisterError> {
    static REGISTERED: OnceLock<Result<(), RegisterError>> = OnceLock::new();
    (*REGISTERED.get_or_init(register_vfs)).map(|()| NAME)
}

/// System VFS. It is static in SQLite and never changes.
struct System(*mut sqlite3_vfs);

// SAFETY: the structure behind it is only read, and SQLite's own functions may be called from any thread.
unsafe impl Send for System {}
// SAFETY: the same.
unsafe impl Sync for System {}

static SYSTEM: OnceLock<System> = OnceLock::new();

fn register_vfs() -> Result<(), RegisterError> {
    // SAFETY: a null name selects the default; SQLite starts itself where it has not yet.
    let system = unsafe { sqlite3_vfs_find(ptr::null()) };
    if system.is_null() {
        return Err(RegisterError { code: SQLITE_ERROR });
    }
    // SAFETY: what was found is registered, so it is valid and stays so.
    let own = unsafe { *system };
    SYSTEM.get_or_init(|| System(system));
    let ours = own_file_bytes();
    // All functions except `xOpen` are those of the system VFS and use its own data.
    let vfs = Box::leak(Box::new(sqlite3_vfs {
        szOsFile: own.szOsFile + ours,
        pNext: ptr::null_mut(),
        zName: NAME.as_ptr(),
        xOpen: Some(open),
        ..own
    }));
    // SAFETY: the structure and its name live as long as the process.
    match unsafe { sqlite3_vfs_register(vfs, 0) } {
        SQLITE_OK => Ok(()),
        code => Err(RegisterError { code }),
    }
}

/// WAL file. The file structure of the system VFS follows it in memory.
#[repr(C)]
struct LogFile {
    /// Must be first: SQLite reads the function table from here.
    base: sqlite3_file,
    /// Owned from open to close.
    buffer: *mut WriteBuffer,
}

fn own_file_bytes() -> c_int {
    c_int::try_from(size_of::<LogFile>()).expect("two pointers")
}

/// Functions of a WAL file. Version 1 of the table has all functions that SQLite uses for a WAL.
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

/// Opens a file: a WAL with our functions, everything else with the system VFS.
///
/// # Safety
/// Called by SQLite: `file` has the size requested by the VFS.
unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let Some(System(system)) = SYSTEM.get() else { return SQLITE_ERROR };
    // SAFETY: it is registered, see `register_vfs`.
    let Some(system_open) = (unsafe { **system }).xOpen else { return SQLITE_ERROR };
    if flags & SQLITE_OPEN_WAL == 0 {
        // SAFETY: `file` has more bytes than the system's VFS requires.
        return unsafe { system_open(*system, name, file, flags, out_flags) };
    }
    let log = file.cast::<LogFile>();
    // SAFETY: `file` has the bytes of a `LogFile`, and nothing is in them yet.
    unsafe {
        log.write(LogFile {
            base: sqlite3_file { pMethods: ptr::null() },
            buffer: ptr::null_mut(),
        });
    }
    // SAFETY: behind our structure are as many bytes as the system's VFS requires.
    let code = unsafe { system_open(*system, name, system_file(file), flags, out_flags) };
    if code == SQLITE_OK {
        // SAFETY: written above. Without functions, which is how it stays after a failure, SQLite
        // does not close it.
        let log = unsafe { &mut *log };
        // SAFETY: SQLite gives a log's name, which ends with a zero.
        let path = unsafe { CStr::from_ptr(name) };
        log.buffer = Box::into_raw(Box::new(WriteBuffer::of(path)));
        log.base.pMethods = &METHODS;
    }
    code
}

/// File of the system VFS behind a WAL file.
///
/// # Safety
/// `file` was initialised by [`open`].
unsafe fn system_file(file: *mut sqlite3_file) -> *mut sqlite3_file {
    // SAFETY: the memory is one piece that reaches beyond the `LogFile`.
    unsafe { file.cast::<LogFile>().add(1).cast() }
}

/// Functions of the system file.
///
/// # Safety
/// `file` was successfully opened by [`open`].
unsafe fn system_methods(file: *mut sqlite3_file) -> &'static sqlite3_io_methods {
    // SAFETY: a file that was opened has a table of functions, and those are static in SQLite.
    unsafe { &*(*system_file(file)).pMethods }
}

/// Write buffer of a file.
///
/// # Safety
/// `file` was successfully opened by [`open`] and is not used elsewhere at the same time.
unsafe fn buffer<'a>(file: *mut sqlite3_file) -> &'a mut WriteBuffer {
    // SAFETY: it is valid from opening to closing.
    unsafe { &mut *(*file.cast::<LogFile>()).buffer }
}

/// Makes the WAL of a connection mark each generation before a commit of it is durable. Returns
/// `false` if the connection has no WAL on this VFS.
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
    unsafe { buffer(file) }.mark = Some(Arc::clone(mark));
    true
}

/// Marks the generation of the frames about to be synced. A failure counts as a failed sync: none
/// of them is written, and the commit fails.
///
/// # Safety
/// As for [`buffer`].
unsafe fn mark_generation(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as the caller promises.
    let buffer = unsafe { buffer(file) };
    match buffer.mark_generation() {
        Ok(()) => SQLITE_OK,
        Err(MarkError::Synced) => buffer.fail(SQLITE_IOERR_FSYNC),
        Err(MarkError::Written(error)) if error.kind() == ErrorKind::StorageFull => {
            buffer.fail(SQLITE_FULL)
        }
        Err(MarkError::Written(_)) => buffer.fail(SQLITE_IOERR_WRITE),
    }
}

/// Writes the buffered bytes.
///
/// # Safety
/// As for [`buffer`].
unsafe fn write_out(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as the caller promises.
    let (buffer, methods) = unsafe { (buffer(file), system_methods(file)) };
    let Some(system_write) = methods.xWrite else { return SQLITE_ERROR };
    buffer.write_out(|at, bytes| {
        // SAFETY: the system's own file with bytes that are ours.
        unsafe { system_write(system_file(file), bytes.as_ptr().cast(), step_len(bytes), at) }
    })
}

fn step_len(bytes: &[u8]) -> c_int {
    c_int::try_from(bytes.len()).expect("a step is far smaller")
}

/// Marks the generation, writes the buffered bytes and preallocates.
///
/// # Safety
/// As for [`buffer`].
unsafe fn write_before_sync(file: *mut sqlite3_file) -> c_int {
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
    let (buffer, methods) = unsafe { (buffer(file), system_methods(file)) };
    let (Some(system_write), Some(system_size)) = (methods.xWrite, methods.xFileSize) else {
        return SQLITE_ERROR;
    };
    let len = || {
        let mut len = 0;
        // SAFETY: the system's own file, and a place for its length.
        let code = unsafe { system_size(system_file(file), &raw mut len) };
        (code == SQLITE_OK).then_some(len)
    };
    buffer.preallocate(len, has_room, |at, zeros| {
        // SAFETY: the system's own file with bytes that are ours.
        unsafe { system_write(system_file(file), zeros.as_ptr().cast(), step_len(zeros), at) }
    });
    SQLITE_OK
}

/// Whether the disk has enough free space.
fn has_room(path: &CStr) -> bool {
    rustix::fs::statvfs(path)
        .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= ROOM_BYTES_MIN)
}

/// Buffers consecutive writes; any other write flushes the buffer first.
///
/// # Safety
/// Called by SQLite.
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
    unsafe { buffer(file) }.note_generation(at, given);
    // SAFETY: a file of ours, on the only thread that uses it.
    if unsafe { buffer(file) }.append(at, given) {
        return SQLITE_OK;
    }
    // SAFETY: the same.
    let code = unsafe { write_out(file) };
    // SAFETY: the same.
    if code != SQLITE_OK || unsafe { buffer(file) }.append(at, given) {
        return code;
    }
    // SAFETY: the same. The write is larger than the buffer.
    let Some(system_write) = (unsafe { system_methods(file) }).xWrite else { return SQLITE_ERROR };
    // SAFETY: handed on as it came.
    unsafe { system_write(system_file(file), bytes, len, at) }
}

/// Writes the buffered bytes and discards the known file length.
///
/// # Safety
/// As for [`buffer`].
unsafe fn flush_and_truncate(file: *mut sqlite3_file) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { buffer(file) }.truncate();
    // SAFETY: the same.
    unsafe { write_out(file) }
}

/// Closes the file. Bytes still buffered were never synced, so they belong to a failed commit: they
/// are discarded, because another connection may have committed at their offset since.
///
/// # Safety
/// Called by SQLite, once.
unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: it came from a box and is used no more.
    drop(unsafe { Box::from_raw((*file.cast::<LogFile>()).buffer) });
    // SAFETY: the file is still open.
    let Some(system_close) = (unsafe { system_methods(file) }).xClose else { return SQLITE_ERROR };
    // SAFETY: once for each that was opened.
    unsafe { system_close(system_file(file)) }
}

/// Functions that forward a call to the system file. Those that access the file, or guarantee
/// something about it, flush the buffer first.
macro_rules! forwarded {
    ($($(#[doc = $doc:literal])+ $name:ident $($after:ident)? => $method:ident($($arg:ident: $type:ty),*);)+) => {$(
        $(#[doc = $doc])+
        ///
        /// # Safety
        /// Called by SQLite.
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
                Some(method) => unsafe { method(system_file(file), $($arg),*) },
                None => SQLITE_ERROR,
            }
        }
    )+};
}

forwarded! {
    /// Reads from the file.
    read write_out => xRead(bytes: *mut c_void, len: c_int, at: sqlite3_int64);
    /// Truncates the file.
    truncate flush_and_truncate => xTruncate(len: sqlite3_int64);
    /// Syncs the file: here a commit is written.
    sync write_before_sync => xSync(flags: c_int);
    /// Returns the file size.
    file_size write_out => xFileSize(len: *mut sqlite3_int64);
    /// Locks the file.
    lock => xLock(level: c_int);
    /// Unlocks the file.
    unlock => xUnlock(level: c_int);
    /// Checks for a reserved lock.
    check_reserved_lock => xCheckReservedLock(found: *mut c_int);
    /// Other file controls.
    file_control write_out => xFileControl(what: c_int, argument: *mut c_void);
    /// Sector size of the disk.
    sector_size => xSectorSize();
    /// Device characteristics.
    device_characteristics => xDeviceCharacteristics();
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use rusqlite::ffi::{SQLITE_OPEN_CREATE, SQLITE_OPEN_READWRITE};

    use super::*;

    /// Writes `bytes` to a new WAL at `path`, syncs it on request, and closes it.
    fn write_and_close(path: &std::path::Path, bytes: &[u8], is_synced: bool) {
        let vfs = register().unwrap();
        // SQLite passes names that are followed by more than one zero.
        let name = [path.as_os_str().as_bytes(), &[0; 4]].concat();
        // SAFETY: registered above, so it is found and valid for ever.
        let vfs = unsafe { &mut *sqlite3_vfs_find(vfs.as_ptr()) };
        let words = usize::try_from(vfs.szOsFile).unwrap().div_ceil(8);
        let mut memory = vec![0_u64; words];
        let file: *mut sqlite3_file = memory.as_mut_ptr().cast();
        let flags = SQLITE_OPEN_WAL | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
        let (open, mut out) = (vfs.xOpen.unwrap(), 0);
        // SAFETY: the memory has the size that the VFS requests, and the name ends with zeros.
        let code = unsafe { open(vfs, name.as_ptr().cast(), file, flags, &raw mut out) };
        assert_eq!(code, SQLITE_OK);
        let len = c_int::try_from(bytes.len()).unwrap();
        // SAFETY: the file was opened above and is used by this thread alone, until it is closed.
        unsafe {
            assert_eq!(write(file, bytes.as_ptr().cast(), len, 0), SQLITE_OK);
            if is_synced {
                assert_eq!(sync(file, 0), SQLITE_OK);
            }
            assert_eq!(close(file), SQLITE_OK);
        }
    }

    #[test]
    fn bytes_of_a_commit_that_was_never_synced_are_discarded_at_close() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db-wal");
        // A new WAL gets the mode of its database.
        std::fs::write(folder.path().join("a.db"), b"").unwrap();
        write_and_close(&path, b"a commit", true);
        assert_eq!(std::fs::read(&path).unwrap(), b"a commit");
        write_and_close(&path, b"another1", false);
        assert_eq!(std::fs::read(&path).unwrap(), b"a commit");
    }
}
