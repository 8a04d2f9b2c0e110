//! Codes, built once and shared, and the cached fault tolerance of each.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use codes::{BlockIndex, Code, CodeSpec};
use recovery::Redundancy;

use crate::error::RequestError;

/// The number of codes that are kept. Clients can name any number of codes.
const KEPT: usize = 256;

/// The codes that were used so far, and their cached fault tolerance.
#[derive(Default)]
pub(crate) struct Codes {
    pub(in crate::stripes) built: RefCell<BTreeMap<String, Arc<dyn Code>>>,
    pub(in crate::stripes) redundancy: RefCell<Redundancy>,
}

impl Codes {
    pub(crate) fn get(&self, spec: &CodeSpec) -> Result<Arc<dyn Code>, RequestError> {
        let (name, mut built) = (spec.to_string(), self.built.borrow_mut());
        if let Some(code) = built.get(&name) {
            return Ok(code.clone());
        }
        let code = spec.build()?;
        if built.len() >= KEPT {
            built.clear(); // Codes in use are built again.
        }
        built.insert(name, code.clone());
        Ok(code)
    }

    /// Returns the number of further blocks that a stripe can lose; `None` if it is not readable.
    pub(crate) fn survives(&self, code: &dyn Code, lost: &[BlockIndex]) -> Option<u32> {
        self.redundancy.borrow_mut().survives(code, lost)
    }
}
