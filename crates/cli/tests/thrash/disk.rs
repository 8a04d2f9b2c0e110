//! Faults of the files on a helper's disk.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fastrand::Rng;

use crate::forging::{FORGED_BYTES, forge};

/// The name of the file that fills a disk. It is not a valid block name, so the helper ignores it.
const FILLER: &str = "filler,";

/// A kind of damage to one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    FlipByte,
    FlipChecksum,
    Truncate,
    Empty,
    DeleteBlock,
    DeleteChecksums,
    DeleteBoth,
    /// A folder replaces the block file. The folder can be opened but not read.
    Unreadable,
    /// Two blocks swap their files, including checksums.
    Swap,
    /// An older version of the block and its checksums replaces the current one.
    Stale,
    /// Changes bytes without changing any checksum.
    Forge,
}

impl Damage {
    /// The kinds that the block's own checksums detect.
    pub const PLAIN: [Self; 8] = [
        Self::FlipByte,
        Self::FlipChecksum,
        Self::Truncate,
        Self::Empty,
        Self::DeleteBlock,
        Self::DeleteChecksums,
        Self::DeleteBoth,
        Self::Unreadable,
    ];
    /// The kinds with matching checksums.
    pub const CONSISTENT: [Self; 3] = [Self::Swap, Self::Stale, Self::Forge];

    pub fn name(self) -> &'static str {
        match self {
            Self::FlipByte => "flipped byte",
            Self::FlipChecksum => "flipped checksum",
            Self::Truncate => "truncated block",
            Self::Empty => "emptied block",
            Self::DeleteBlock => "deleted block",
            Self::DeleteChecksums => "deleted checksums",
            Self::DeleteBoth => "deleted pair",
            Self::Unreadable => "read error",
            Self::Swap => "swapped pairs",
            Self::Stale => "stale pair",
            Self::Forge => "forged block",
        }
    }
}

/// Returns the block files in a folder, in a fixed order. A block file is a file that has a checksum file.
pub fn blocks_in(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for shard in entries(folder).into_iter().filter(|path| path.is_dir()) {
        found.extend(entries(&shard).into_iter().filter(|path| path.is_file() && checksums(path).is_file()));
    }
    found
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn checksums(block: &Path) -> PathBuf {
    let mut name = block.as_os_str().to_owned();
    name.push(".crc");
    name.into()
}

/// Damages one block in `folder` and describes the damage. `snapshot` is an older copy of the folder. May
/// fail, because a running helper may change the folder at the same time.
pub fn damage(folder: &Path, snapshot: &Path, damage: Damage, rng: &mut Rng) -> io::Result<String> {
    let blocks = blocks_in(folder);
    let Some(block) = rng.choice(&blocks) else { return Ok("no block".to_owned()) };
    match damage {
        Damage::FlipByte => flip(block, rng)?,
        Damage::FlipChecksum => flip(&checksums(block), rng)?,
        Damage::Truncate => truncate(block, rng)?,
        Damage::Empty => OpenOptions::new().write(true).open(block)?.set_len(0)?,
        Damage::DeleteBlock => fs::remove_file(block)?,
        Damage::DeleteChecksums => fs::remove_file(checksums(block))?,
        Damage::DeleteBoth => {
            fs::remove_file(block)?;
            fs::remove_file(checksums(block))?;
        }
        Damage::Unreadable => {
            fs::remove_file(block)?;
            fs::create_dir(block)?;
        }
        Damage::Forge => forge_in(block, rng)?,
        Damage::Swap => return swap(block, rng.choice(&blocks).expect("there is one")),
        Damage::Stale => return replace(block, &blocks_in(snapshot), rng),
    }
    Ok(name(block))
}

fn name(block: &Path) -> String {
    block.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn flip(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len();
    if bytes == 0 {
        return Ok(());
    }
    let (at, mut byte) = (rng.u64(..bytes), [0]);
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[byte[0] ^ 1 << rng.u32(..8)], at)
}

/// Forges bytes at an offset that is a multiple of 64. Two forgeries of one block therefore never overlap
/// partially.
fn forge_in(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let places = file.metadata()?.len() / 64;
    if places == 0 {
        return Ok(());
    }
    let (at, mut bytes) = (64 * rng.u64(..places), [0; FORGED_BYTES]);
    file.read_exact_at(&mut bytes, at)?;
    forge(&mut bytes, rng.u8(1..));
    file.write_all_at(&bytes, at)
}

fn truncate(path: &Path, rng: &mut Rng) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let bytes = file.metadata()?.len();
    file.set_len(if bytes == 0 { 0 } else { rng.u64(..bytes) })
}

fn swap(one: &Path, other: &Path) -> io::Result<String> {
    if one != other {
        exchange(one, other)?;
        exchange(&checksums(one), &checksums(other))?;
    }
    Ok(format!("{} and {}", name(one), name(other)))
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let mut aside = one.as_os_str().to_owned();
    aside.push(",aside");
    fs::rename(one, &aside)?;
    fs::rename(other, one)?;
    fs::rename(&aside, other)
}

/// Replaces a block and its checksums with an older version. Creates new files, so that a reader that has the
/// old ones open keeps the old contents.
fn replace(block: &Path, stale: &[PathBuf], rng: &mut Rng) -> io::Result<String> {
    let Some(old) = rng.choice(stale) else { return Ok("no snapshot".to_owned()) };
    fs::remove_file(block)?;
    fs::copy(old, block)?;
    fs::remove_file(checksums(block))?;
    fs::copy(checksums(old), checksums(block))?;
    Ok(format!("{} in place of {}", name(old), name(block)))
}

/// Copies about half of a helper's blocks, with their checksums, to another helper's folder. A coordinator
/// that is killed during a move leaves such copies. Returns the number of copied blocks.
pub fn hoard(from: &Path, to: &Path, rng: &mut Rng) -> io::Result<usize> {
    let mut copied = 0;
    for block in blocks_in(from) {
        let copy = to.join(block.strip_prefix(from).expect("it is in there"));
        if rng.bool() || copy.exists() {
            continue;
        }
        fs::create_dir_all(copy.parent().expect("blocks are in shards"))?;
        fs::copy(checksums(&block), checksums(&copy))?;
        fs::copy(&block, &copy)?;
        copied += 1;
    }
    Ok(copied)
}

/// Empties a folder, which may be a mount point.
pub fn empty(folder: &Path) -> io::Result<()> {
    for path in entries(folder) {
        if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
    }
    Ok(())
}

/// Copies the blocks of a folder while a helper uses it, like a careless backup.
pub fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for shard in entries(from).into_iter().filter(|path| path.is_dir()) {
        let copy = to.join(shard.file_name().unwrap_or_default());
        fs::create_dir_all(&copy)?;
        for file in entries(&shard) {
            match fs::copy(&file, copy.join(file.file_name().unwrap_or_default())) {
                // The file may have been removed since it was listed, or be a folder that replaces a block.
                Err(error) if error.kind() != io::ErrorKind::NotFound && file.is_file() => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Removes folders that replace block files.
pub fn make_readable(folder: &Path) {
    for shard in entries(folder).into_iter().filter(|path| path.is_dir()) {
        entries(&shard).iter().filter(|path| path.is_dir()).for_each(|path| _ = fs::remove_dir_all(path));
    }
}

/// Fills a disk with a file and leaves `leave` bytes free.
pub fn fill(folder: &Path, leave: u64) -> io::Result<()> {
    let filler = File::create(folder.join(FILLER))?;
    let found = rustix::fs::statvfs(folder)?;
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let bytes = free.saturating_sub(leave);
    if bytes > 0 {
        rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
    }
    Ok(())
}

/// Removes the filler.
pub fn unfill(folder: &Path) {
    let _ = fs::remove_file(folder.join(FILLER)); // The filler may not exist.
}
