//! Comparing helpers' blocks once the store has been listed.

use crate::error::ScrubError;
use crate::facts::Around;
use crate::out::Out;
use crate::stripes::Stripes;

impl Stripes {
    /// The store has not been listed yet, for this reason; or it has: helpers' blocks are compared with it.
    pub(crate) fn note_unlisted(&mut self, around: Around<'_>, why: Option<&String>, out: &mut Out) {
        for (node, blocks) in self.news.set_unlisted(why) {
            if around.nodes.is_helper(node) {
                self.compare(around, node, &blocks, out);
                self.recheck_next(around, node, out);
            }
        }
    }
}

impl Stripes {
    /// Refuses what would say of an empty picture that all is well.
    pub(crate) fn check_listed(&self) -> Result<(), ScrubError> {
        self.news.unlisted().map_or(Ok(()), |why| Err(ScrubError::Unlisted(why.to_owned())))
    }
}
