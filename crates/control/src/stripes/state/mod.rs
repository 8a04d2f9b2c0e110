//! The parts of the state of stripes. The rules that change one part depending on other parts are in the
//! parent module.

pub(crate) mod codes;
pub(crate) mod condemned;
pub(crate) mod contradictions;
pub(crate) mod copy_search;
pub(crate) mod described;
pub(crate) mod holdings;
pub(crate) mod made_lately;
pub(crate) mod newer_claims;
pub(crate) mod orphans;
pub(crate) mod readers;
pub(crate) mod store_news;
pub(crate) mod unadopted;
pub(crate) mod unrecorded;
