//! Resolves the output path of a get: a file to create or replace, or a device, FIFO or socket to write to.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, geteuid, getpid, pidfd_getfd, pidfd_open};

/// The maximum number of symbolic links to follow, as on Linux.
const MAX_LINKS: u32 = 40;
/// The mode bits of a shared folder such as `/tmp`.
const STICKY_AND_WRITABLE_BY_ALL: u32 = 0o1002;
/// The close-on-exec flag, as shown in `/proc/self/fdinfo`.
const CLOSE_ON_EXEC: u32 = 0o2000000;

/// The kind of file that a path refers to.
#[derive(Debug)]
pub(crate) enum Destination {
    /// A regular file, which may not exist yet.
    File(FilePlace),
    /// An open device, FIFO, socket, or descriptor of this process.
    Stream(File),
}

/// The location of an existing or future regular file.
#[derive(Clone, Debug)]
pub(crate) struct FilePlace {
    /// The path, with all symbolic links resolved.
    pub(crate) path: PathBuf,
    /// The metadata of the existing file, if any.
    pub(crate) existing: Option<Metadata>,
}

impl FilePlace {
    /// Returns the place of a file that does not exist yet. Symbolic links are not followed.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists), and other I/O errors.
    pub(crate) fn new_file(path: &Path) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(_) => {
                Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file with this name already exists"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self { path: path.to_owned(), existing: None })
            }
            Err(error) => Err(error),
        }
    }
}

/// The end of a chain of symbolic links.
enum End {
    Nothing(PathBuf),
    There(PathBuf, Metadata),
    /// The path refers to an open file descriptor of this process, with this number.
    Descriptor(i32),
}

impl Destination {
    /// Resolves `path`, and opens it unless it is a regular file. Opening a FIFO waits for a reader.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        match follow(path)? {
            End::Descriptor(number) => descriptor(number).map(File::from).map(Self::Stream),
            End::Nothing(end) => match std::fs::metadata(path) {
                // The path is a link in `/proc` that can be opened although the link's text is not a real
                // path.
                Ok(found) => open_as_it_is(path, &found).map(Self::Stream),
                Err(_) if end.as_os_str().as_encoded_bytes().ends_with(b"/") => {
                    Err(io::ErrorKind::IsADirectory.into())
                }
                Err(_) if end.file_name().is_none() => Err(io::ErrorKind::NotFound.into()),
                Err(_) => Ok(Self::File(FilePlace { path: end, existing: None })),
            },
            End::There(_, found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            End::There(end, found) if found.is_file() => {
                check_writable(&end)?;
                Ok(Self::File(FilePlace { path: end, existing: Some(found) }))
            }
            End::There(end, found) => open_as_it_is(&end, &found).map(Self::Stream),
        }
    }
}

/// Follows symbolic links to the last target, which may not exist.
fn follow(path: &Path) -> io::Result<End> {
    let mut path = path.to_owned();
    for _ in 0..=MAX_LINKS {
        if let Some(number) = own_descriptor(&path) {
            return Ok(End::Descriptor(number));
        }
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                check_followable(&path, &found)?;
                path = folder_of(&path).join(std::fs::read_link(&path)?);
            }
            Ok(found) => return Ok(End::There(path, found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(End::Nothing(path)),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP.into())
}

/// In a shared folder such as `/tmp`, follows only links that belong to us or to the folder's owner. Another
/// user's link could make us replace any of our files. Linux enforces the same rule if
/// `fs.protected_symlinks` is set, which is not the case everywhere.
fn check_followable(link: &Path, found: &Metadata) -> io::Result<()> {
    let folder = std::fs::metadata(folder_of(link))?;
    let is_shared = folder.mode() & STICKY_AND_WRITABLE_BY_ALL == STICKY_AND_WRITABLE_BY_ALL;
    let is_known = found.uid() == geteuid().as_raw() || found.uid() == folder.uid();
    if is_shared && !is_known { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

/// Returns the folder that contains the path's last component.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the descriptor number if the path is one such as `/dev/stdout`, `/dev/fd/N` or `/proc/self/fd/N`.
/// Callers must duplicate the descriptor: opening the path instead would start at the beginning of a file,
/// and fails for a socket.
fn own_descriptor(path: &Path) -> Option<i32> {
    let number = path.file_name()?.to_str()?.parse().ok()?;
    let folder = std::fs::canonicalize(folder_of(path)).ok()?;
    let own = Path::new("/proc").join(std::process::id().to_string());
    (folder.starts_with(own) && folder.ends_with("fd")).then_some(number)
}

fn descriptor(number: i32) -> io::Result<OwnedFd> {
    match number {
        0 => return io::stdin().as_fd().try_clone_to_owned(),
        1 => return io::stdout().as_fd().try_clone_to_owned(),
        2 => return io::stderr().as_fd().try_clone_to_owned(),
        _ => {}
    }
    if !is_inherited(number) {
        return Err(Errno::BADF.into()); // This process opened it, for example as a socket.
    }
    let own = pidfd_open(getpid(), PidfdFlags::empty())?;
    Ok(pidfd_getfd(own, number, PidfdGetfdFlags::empty())?)
}

/// Whether this process inherited the descriptor. Descriptors that we open ourselves have close-on-exec set.
fn is_inherited(number: i32) -> bool {
    let Ok(facts) = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")) else { return false };
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0)
}

fn open_as_it_is(path: &Path, found: &Metadata) -> io::Result<File> {
    if found.file_type().is_socket() {
        return Ok(File::from(OwnedFd::from(UnixStream::connect(path)?)));
    }
    let flags = OFlags::NOCTTY.bits() as i32;
    OpenOptions::new().write(true).custom_flags(flags).open(path)
}

/// Refuses to replace a file that we cannot write to, even if the permissions of the file's folder allow it.
fn check_writable(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()), // A running program cannot be opened for writing, but it can be replaced.
    }
}
