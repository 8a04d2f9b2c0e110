//! ISA-L through its shared library, loaded at run time and not needed to build.

use libloading::{Library, Symbol};

type EncodeData = unsafe extern "C" fn(i32, i32, i32, *const u8, *const *const u8, *const *mut u8);
type EncodeUpdate = unsafe extern "C" fn(i32, i32, i32, i32, *const u8, *const u8, *const *mut u8);
type InitTables = unsafe extern "C" fn(i32, i32, *const u8, *mut u8);

/// The functions of ISA-L that have a counterpart here.
pub struct IsaL {
    // Never unloaded, because the functions below point into it.
    _library: &'static Library,
    init_tables: InitTables,
    encode_data: EncodeData,
    encode_update: EncodeUpdate,
}

impl IsaL {
    /// Loads ISA-L; `None` if libisal.so.2 is not installed (Debian: `apt install libisal2`).
    pub fn load() -> Option<Self> {
        // SAFETY: ISA-L's initialisers only detect CPU features.
        let library: &'static Library = Box::leak(Box::new(unsafe { Library::new("libisal.so.2") }.ok()?));
        // SAFETY: the types match the declarations in isa-l/erasure_code.h, version 2.
        unsafe {
            let init_tables: Symbol<'_, InitTables> = library.get(b"ec_init_tables\0").ok()?;
            let encode_data: Symbol<'_, EncodeData> = library.get(b"ec_encode_data\0").ok()?;
            let encode_update: Symbol<'_, EncodeUpdate> = library.get(b"ec_encode_data_update\0").ok()?;
            Some(Self {
                _library: library,
                init_tables: *init_tables,
                encode_data: *encode_data,
                encode_update: *encode_update,
            })
        }
    }

    /// Returns ISA-L's 32-byte tables for `rows` rows of coefficients.
    pub fn tables(&self, coefficients: &[u8], rows: usize) -> Vec<u8> {
        let mut tables = vec![0; 32 * coefficients.len()];
        let sources = coefficients.len() / rows;
        // SAFETY: the function reads sources·rows coefficients and writes 32 bytes for each.
        unsafe { (self.init_tables)(int(sources), int(rows), coefficients.as_ptr(), tables.as_mut_ptr()) };
        tables
    }

    /// Calls ISA-L's equivalent of `Kernel::combine`.
    pub fn combine(&self, tables: &[u8], sources: &[&[u8]], targets: &mut [&mut [u8]]) {
        let bytes = targets[0].len();
        assert!(sources.iter().all(|s| s.len() == bytes) && targets.iter().all(|t| t.len() == bytes));
        assert_eq!(tables.len(), 32 * sources.len() * targets.len());
        let from: Vec<*const u8> = sources.iter().map(|s| s.as_ptr()).collect();
        let to: Vec<*mut u8> = targets.iter_mut().map(|t| t.as_mut_ptr()).collect();
        // SAFETY: the lengths were checked above, and targets are exclusive borrows.
        unsafe {
            (self.encode_data)(
                int(bytes),
                int(from.len()),
                int(to.len()),
                tables.as_ptr(),
                from.as_ptr(),
                to.as_ptr(),
            )
        }
    }

    /// Calls ISA-L's equivalent of `Kernel::mul_add`.
    pub fn mul_add(&self, tables: &[u8], source: &[u8], target: &mut [u8]) {
        assert_eq!(source.len(), target.len());
        assert_eq!(tables.len(), 32);
        let to = [target.as_mut_ptr()];
        // SAFETY: one source and one target of the same length, and a table for their one coefficient.
        unsafe {
            (self.encode_update)(int(source.len()), 1, 1, 0, tables.as_ptr(), source.as_ptr(), to.as_ptr())
        }
    }
}

fn int(count: usize) -> i32 {
    i32::try_from(count).expect("a count within ISA-L's int")
}
