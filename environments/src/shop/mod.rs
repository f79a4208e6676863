//! The shop of WebShop (Yao et al., *WebShop: Towards Scalable Real-World Web Interaction with Grounded
//! Language Agents*, 2022; princeton-nlp/WebShop, `web_agent_site`): products, goals, search, pages, rewards.
//!
//! This module does no I/O. [`Shop`] consists of products and an index as bytes, in memory or mapped from a
//! file; many visits share one. A [`ShopSession`] is one customer's session on the pages.

mod catalogue;
mod goal;
mod nouns;
mod page;
mod price;
mod product;
mod product_store;
mod python_random;
mod ratio;
mod reward;
mod sections;
mod session;
#[allow(clippy::module_inception)]
mod shop;
#[cfg(test)]
mod tests;

mod search {
    //! Search with Lucene's scores: BM25 with k1 0.9 and b 0.4 over texts in Lucene's English analysis.
    //!
    //! An index is a sequence of bytes, in memory or in a mapped file: [`ProductIndexBuilder`] writes it, [`ProductIndex`]
    //! reads it.

    mod analysis;
    mod builder;
    mod index;

    pub(super) use builder::ProductIndexBuilder;
    pub(super) use index::ProductIndex;
}

pub use catalogue::{BadProduct, CatalogueError, CatalogueReader, Entry, Instruction, SAMPLE_ITEMS, Stock};
pub use goal::{Goal, GoalMode, GoalOptions, draw};
pub use nouns::{Approximation, KnownNouns, VERSION as NOUNS_VERSION};
pub use page::{Clickable, ElementRole, TextElement, clickables_of, observation_of};
pub use price::PriceRange;
pub use product::Product;
pub use product_store::ProductStore;
pub use reward::{PurchaseReward, Tagger};
pub use sections::Damaged;
pub use session::{ShopAction, ShopServices, ShopSession, ShopStep};
pub use shop::{Raised, SearchEngine, Shop, ShopBuilder, VERSION};
