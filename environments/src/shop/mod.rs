//! The shop of WebShop (Yao et al., *WebShop: Towards Scalable Real-World Web Interaction with Grounded
//! Language Agents*, 2022; princeton-nlp/WebShop, `web_agent_site`): products, goals, search, pages, rewards.
//!
//! This module does no I/O. [`Shop`] consists of products and an index as bytes, in memory or mapped from a
//! file; many visits share one. A [`ShopSession`] is one customer's session on the pages.

mod catalogue;
mod colour;
mod goal;
mod nouns;
mod page;
mod price;
mod product;
mod product_store;
mod python_random;
mod ratio;
mod reward;
mod search;
mod sections;
mod session;
#[allow(clippy::module_inception)]
mod shop;

pub use catalogue::{
    Attributes, BadProduct, CatalogueError, CatalogueReader, Entry, HumanInstruction, Instruction,
    SAMPLE_ATTRIBUTES, SAMPLE_ITEMS, SideTables, Stock,
};
pub use colour::{colour_of, colour_of_pair};
pub use goal::{DRAWING_SEED, Goal, GoalMode, GoalOptions, SHUFFLING_SEED, draw};
pub use nouns::{Approximation, KnownNouns, VERSION as NOUNS_VERSION};
pub use page::{
    About, BACK_TO_SEARCH, BUY_NOW, Clickable, DETAILS, ElementRole, ListedProduct, NEXT, PREVIOUS,
    ProductPage, SEARCH, SEPARATOR, ShopPage, TextElement, clickables_of, observation_of,
};
pub use price::PriceRange;
pub use product::{Listing, Product, ProductView};
pub use product_store::{ProductStore, ProductStoreBuilder};
pub use python_random::PythonRandom;
pub use ratio::token_set_ratio;
pub use reward::{PurchaseReward, Tagger, reward, type_factor};
pub use search::{ProductIndex, ProductIndexBuilder, TooManyTerms};
pub use sections::{Bytes, Damaged};
pub use session::{ShopAction, ShopServices, ShopSession, ShopStep};
pub use shop::{MOST_FOUND, Raised, SearchEngine, Shop, ShopBuilder, VERSION};
