//! The C library `libmend`: `include/mend.h` over [`client::blocking`].
//!
//! This crate converts pointers, strings and errors, and has no other logic. Each function documents its
//! contract in the header. A panic never crosses into C: it becomes `MEND_INTERNAL`.

use std::any::Any;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::str::FromStr;
use std::time::Duration;

use client::blocking::{Connection, Error, ErrorKind, Options, Reader};

/// `mend_status`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// See [`ErrorKind::Invalid`].
    Invalid = 1,
    /// See [`ErrorKind::Setup`].
    Setup = 2,
    /// See [`ErrorKind::Unreachable`].
    Unreachable = 3,
    /// See [`ErrorKind::Untrusted`].
    Untrusted = 4,
    /// See [`ErrorKind::NotFound`].
    NotFound = 5,
    /// See [`ErrorKind::Refused`].
    Refused = 6,
    /// See [`ErrorKind::OutOfRange`].
    OutOfRange = 7,
    /// See [`ErrorKind::TooMuchLost`].
    TooMuchLost = 8,
    /// See [`ErrorKind::Corrupt`].
    Corrupt = 9,
    /// See [`ErrorKind::Replaced`].
    Replaced = 10,
    /// See [`ErrorKind::Failed`].
    Failed = 11,
    /// See [`ErrorKind::TimedOut`].
    TimedOut = 12,
    /// See [`ErrorKind::Protocol`].
    Protocol = 13,
    /// See [`ErrorKind::Internal`].
    Internal = 14,
}

/// The names of the statuses, by number.
const NAMES: [&CStr; 15] = [
    c"OK",
    c"INVALID",
    c"SETUP",
    c"UNREACHABLE",
    c"UNTRUSTED",
    c"NOT_FOUND",
    c"REFUSED",
    c"OUT_OF_RANGE",
    c"TOO_MUCH_LOST",
    c"CORRUPT",
    c"REPLACED",
    c"FAILED",
    c"TIMED_OUT",
    c"PROTOCOL",
    c"INTERNAL",
];

impl From<ErrorKind> for Status {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::Setup => Self::Setup,
            ErrorKind::Unreachable => Self::Unreachable,
            ErrorKind::Untrusted => Self::Untrusted,
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Refused => Self::Refused,
            ErrorKind::OutOfRange => Self::OutOfRange,
            ErrorKind::TooMuchLost => Self::TooMuchLost,
            ErrorKind::Corrupt => Self::Corrupt,
            ErrorKind::Replaced => Self::Replaced,
            ErrorKind::Failed => Self::Failed,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::Protocol => Self::Protocol,
            // Only the function that runs while a call waits can interrupt it; here it always continues.
            ErrorKind::Interrupted | ErrorKind::Internal => Self::Internal,
        }
    }
}

/// `MEND_MESSAGE_BYTES`.
const MESSAGE_BYTES: usize = 1020;

/// `mend_error`.
#[repr(C)]
#[derive(Debug)]
pub struct ErrorSlot {
    status: Status,
    message: [c_char; MESSAGE_BYTES],
}

/// `mend_options`.
#[repr(C)]
#[derive(Debug)]
pub struct OptionsView {
    client: *const c_char,
    api: *const c_char,
    control: *const c_char,
    rack: *const c_char,
    scheme: *const c_char,
    timeout_ms: u64,
}

/// See `mend.h`.
#[unsafe(no_mangle)]
pub extern "C" fn mend_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// See `mend.h`.
#[unsafe(no_mangle)]
pub extern "C" fn mend_status_name(status: c_int) -> *const c_char {
    usize::try_from(status).ok().and_then(|status| NAMES.get(status)).unwrap_or(&c"UNKNOWN").as_ptr()
}

/// See `mend.h`.
///
/// # Safety
/// Strings end with NUL, `options` is null or valid, and `client` and `error` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_connect(
    folder: *const c_char,
    options: *const OptionsView,
    client: *mut *mut Connection,
    error: *mut ErrorSlot,
) -> Status {
    // SAFETY: as promised by the caller.
    unsafe {
        open(client, "client", error, || {
            if folder.is_null() {
                return Err(Error::new(ErrorKind::Invalid, "`folder` is NULL"));
            }
            let folder = Path::new(OsStr::from_bytes(CStr::from_ptr(folder).to_bytes()));
            Connection::connect(folder, options_of(options)?, &mut || true)
        })
    }
}

/// See `mend.h`.
///
/// # Safety
/// `client` is null or comes from [`mend_connect`], and this is the last call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_disconnect(client: *mut Connection) {
    // SAFETY: as promised by the caller.
    unsafe { release(client) }
}

/// See `mend.h`.
///
/// # Safety
/// `client` is null or connected, strings end with NUL, and `reader` and `error` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_open_file(
    client: *mut Connection,
    name: *const c_char,
    reader: *mut *mut Reader,
    error: *mut ErrorSlot,
) -> Status {
    // SAFETY: as promised by the caller.
    unsafe {
        open(reader, "reader", error, || {
            handle(client, "client")?.open_file(text(name, "name")?, &mut || true)
        })
    }
}

/// See `mend.h`.
///
/// # Safety
/// `client` is null or connected, strings end with NUL, and `reader` and `error` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_open_block(
    client: *mut Connection,
    stripe: *const c_char,
    index: u32,
    reader: *mut *mut Reader,
    error: *mut ErrorSlot,
) -> Status {
    // SAFETY: as promised by the caller.
    unsafe {
        open(reader, "reader", error, || {
            let (client, stripe) = (handle(client, "client")?, text(stripe, "stripe")?);
            let index = u16::try_from(index)
                .map_err(|_| Error::new(ErrorKind::NotFound, format!("no stripe has a block {index}")))?;
            client.open_block(stripe, index, &mut || true)
        })
    }
}

/// See `mend.h`.
///
/// # Safety
/// `reader` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_size(reader: *const Reader) -> u64 {
    // SAFETY: as promised by the caller.
    unsafe { reader.as_ref() }.map_or(0, Reader::size)
}

/// See `mend.h`.
///
/// # Safety
/// `reader` is null or open, `buffer` has room for `bytes` bytes, and `error` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_read(
    reader: *mut Reader,
    offset: u64,
    buffer: *mut c_void,
    bytes: usize,
    error: *mut ErrorSlot,
) -> Status {
    // SAFETY: as promised by the caller.
    unsafe {
        report(error, || {
            let reader = handle(reader, "reader")?;
            if buffer.is_null() && bytes > 0 {
                return Err(Error::new(ErrorKind::Invalid, "`buffer` is NULL"));
            }
            // The buffer may be uninitialized, so no reference to its bytes is created.
            let (buffer, mut filled) = (buffer.cast::<u8>(), 0);
            let mut pieces = reader.pieces(offset..offset.saturating_add(bytes as u64))?;
            while let Some(piece) = pieces.next(&mut || true)? {
                assert!(piece.len() <= bytes - filled, "the pieces exceed the range");
                ptr::copy_nonoverlapping(piece.as_ptr(), buffer.add(filled), piece.len());
                filled += piece.len();
            }
            assert_eq!(filled, bytes, "the pieces are shorter than the range");
            Ok(())
        })
    }
}

/// See `mend.h`.
///
/// # Safety
/// `reader` is null or open, and this is the last call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mend_close(reader: *mut Reader) {
    // SAFETY: as promised by the caller.
    unsafe { release(reader) }
}

/// Converts `mend_options`.
///
/// # Safety
/// `options` is null or valid, and its strings end with NUL.
unsafe fn options_of(options: *const OptionsView) -> Result<Options, Error> {
    // SAFETY: as promised by the caller.
    unsafe {
        let Some(options) = options.as_ref() else { return Ok(Options::default()) };
        let &OptionsView { client, api, control, rack, scheme, timeout_ms } = options;
        Ok(Options {
            client: parsed(client, "client")?,
            api: parsed(api, "api")?,
            control: parsed(control, "control")?,
            rack: parsed(rack, "rack")?,
            scheme: parsed(scheme, "scheme")?.unwrap_or_default(),
            time_limit: (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms)),
        })
    }
}

/// Parses an optional string; `None` if it is null.
///
/// # Safety
/// `value` is null or ends with NUL.
unsafe fn parsed<T: FromStr<Err: ToString>>(value: *const c_char, name: &str) -> Result<Option<T>, Error> {
    if value.is_null() {
        return Ok(None);
    }
    // SAFETY: as promised by the caller.
    let value = unsafe { text(value, name)? };
    let invalid = |error: T::Err| Error::new(ErrorKind::Invalid, format!("`{name}`: {}", error.to_string()));
    value.parse().map(Some).map_err(invalid)
}

/// Converts a required string.
///
/// # Safety
/// `value` is null or ends with NUL, and does not change during `'a`.
unsafe fn text<'a>(value: *const c_char, name: &str) -> Result<&'a str, Error> {
    let invalid = |problem: &str| Error::new(ErrorKind::Invalid, format!("`{name}` is {problem}"));
    if value.is_null() {
        return Err(invalid("NULL"));
    }
    // SAFETY: as promised by the caller.
    unsafe { CStr::from_ptr(value) }.to_str().map_err(|_| invalid("not UTF-8"))
}

/// Converts a handle.
///
/// # Safety
/// `handle` is null, or open during `'a`.
unsafe fn handle<'a, T>(handle: *const T, name: &str) -> Result<&'a T, Error> {
    // SAFETY: as promised by the caller.
    unsafe { handle.as_ref() }.ok_or_else(|| Error::new(ErrorKind::Invalid, format!("`{name}` is NULL")))
}

/// Runs `work`, stores its result as a handle in `target`, and reports an error.
///
/// # Safety
/// `target` and `error` are null or writable.
unsafe fn open<T>(
    target: *mut *mut T,
    name: &str,
    error: *mut ErrorSlot,
    work: impl FnOnce() -> Result<T, Error>,
) -> Status {
    // SAFETY: as promised by the caller.
    unsafe {
        report(error, || {
            if target.is_null() {
                return Err(Error::new(ErrorKind::Invalid, format!("`{name}` is NULL")));
            }
            target.write(ptr::null_mut());
            target.write(Box::into_raw(Box::new(work()?)));
            Ok(())
        })
    }
}

/// Frees a handle.
///
/// # Safety
/// `handle` is null or comes from [`open`], and is not used afterwards.
unsafe fn release<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as promised by the caller.
        let handle = unsafe { Box::from_raw(handle) };
        // The panic hook has printed the message, and the caller cannot react.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(handle)));
    }
}

/// Runs `work`, and stores its error or success in `error`.
///
/// # Safety
/// `error` is null or writable.
unsafe fn report(error: *mut ErrorSlot, work: impl FnOnce() -> Result<(), Error>) -> Status {
    // Handles stay consistent after a panic: they are only read.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)));
    let (status, message) = match result {
        Ok(()) => (Status::Ok, String::new()),
        Err(error) => (error.kind.into(), error.message.replace('\0', "\u{fffd}")),
    };
    if !error.is_null() {
        let message = &message.as_bytes()[..message.floor_char_boundary(MESSAGE_BYTES - 1)];
        // SAFETY: `error` is writable, and the message with its NUL fits. The struct may be uninitialized, so
        // no reference to it is created.
        unsafe {
            (&raw mut (*error).status).write(status);
            let target = (&raw mut (*error).message).cast::<u8>();
            ptr::copy_nonoverlapping(message.as_ptr(), target, message.len());
            target.add(message.len()).write(0);
        }
    }
    status
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Error::new(ErrorKind::Internal, format!("a defect of libmend: {text}"))
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;

    use super::*;

    const HEADER: &str = include_str!("../include/mend.h");

    fn message_of(result: Result<(), Error>) -> (Status, String) {
        let mut slot = MaybeUninit::<ErrorSlot>::uninit();
        // SAFETY: the slot is writable, and `report` ends the message with NUL.
        unsafe {
            let status = report(slot.as_mut_ptr(), || result);
            assert_eq!((&raw const (*slot.as_ptr()).status).read(), status);
            let message = CStr::from_ptr((&raw const (*slot.as_ptr()).message).cast());
            (status, message.to_str().expect("UTF-8").to_owned())
        }
    }

    #[test]
    fn the_header_has_the_same_statuses_sizes_and_functions() {
        let statuses: Vec<String> = HEADER
            .lines()
            .filter_map(|line| line.trim().strip_prefix("MEND_")?.split_once(" = "))
            .map(|(name, number)| format!("{name} {}", number.split([',', ' ']).next().expect("a number")))
            .collect();
        let names =
            NAMES.iter().zip(0..).map(|(name, number)| format!("{} {number}", name.to_str().unwrap()));
        assert_eq!(statuses, names.collect::<Vec<_>>());
        assert_eq!(Status::Internal as usize, NAMES.len() - 1);
        assert!(HEADER.contains(&format!("#define MEND_MESSAGE_BYTES {MESSAGE_BYTES}\n")));
        assert_eq!(size_of::<ErrorSlot>(), 1024);
        let name = |line: &str| {
            let name = line.split_once('(')?.0.rsplit([' ', '*']).next()?;
            name.starts_with("mend_").then(|| name.to_owned())
        };
        let declared: Vec<String> =
            HEADER.lines().filter(|line| !line.starts_with([' ', '/', '#'])).filter_map(name).collect();
        let exported = include_str!("lib.rs").lines().filter(|line| line.contains(" extern \"C\" fn "));
        assert_eq!(declared, exported.filter_map(name).collect::<Vec<_>>());
        assert!(declared.contains(&"mend_connect".to_owned()), "{declared:?}");
    }

    #[test]
    fn a_panic_becomes_a_status() {
        // SAFETY: a null pointer is allowed.
        assert_eq!(unsafe { report(ptr::null_mut(), || panic!("as intended")) }, Status::Internal);
    }

    #[test]
    fn messages_are_cut_at_the_end_of_a_character_and_have_no_nul() {
        assert_eq!(message_of(Ok(())), (Status::Ok, String::new()));
        let (status, message) = message_of(Err(Error::new(ErrorKind::Refused, "é".repeat(600))));
        assert_eq!((status, message), (Status::Refused, "é".repeat(509)));
        let (_, message) = message_of(Err(Error::new(ErrorKind::Refused, "a\0b")));
        assert_eq!(message, "a\u{fffd}b");
    }

    #[test]
    fn null_and_text_that_is_not_utf8_are_refused() {
        // SAFETY: null pointers are allowed, and the strings end with NUL.
        unsafe {
            let mut client = ptr::dangling_mut::<Connection>();
            let null = ptr::null();
            assert_eq!(mend_connect(null, ptr::null(), &mut client, ptr::null_mut()), Status::Invalid);
            assert!(client.is_null());
            let folder = c"/nonexistent".as_ptr();
            assert_eq!(mend_connect(folder, ptr::null(), ptr::null_mut(), ptr::null_mut()), Status::Invalid);
            assert_eq!(mend_connect(folder, ptr::null(), &mut client, ptr::null_mut()), Status::Setup);
            let mut reader = ptr::null_mut();
            assert_eq!(mend_open_file(client, folder, &mut reader, ptr::null_mut()), Status::Invalid);
            assert_eq!(mend_read(reader, 0, ptr::null_mut(), 0, ptr::null_mut()), Status::Invalid);
            assert_eq!(text(c"\xff".as_ptr(), "name").unwrap_err().message, "`name` is not UTF-8");
            assert_eq!(mend_size(reader), 0);
            mend_close(reader);
            mend_disconnect(client);
        }
    }

    #[test]
    fn an_option_that_cannot_be_parsed_is_named() {
        let options = |scheme: &CStr| OptionsView {
            client: ptr::null(),
            api: ptr::null(),
            control: ptr::null(),
            rack: ptr::null(),
            scheme: scheme.as_ptr(),
            timeout_ms: 0,
        };
        // SAFETY: the strings end with NUL.
        unsafe {
            assert!(options_of(&options(c"cyclic")).is_ok());
            let error = options_of(&options(c"fastest")).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Invalid);
            assert!(error.message.starts_with("`scheme`: "), "{error}");
        }
        assert_eq!(unsafe { CStr::from_ptr(mend_status_name(8)) }, c"TOO_MUCH_LOST");
        assert_eq!(unsafe { CStr::from_ptr(mend_status_name(-1)) }, c"UNKNOWN");
    }
}
