//! Products, owned ([`Product`]) and borrowed from a shelf (`ProductView`).

use serde::{Deserialize, Serialize};

/// A product as shown by the shop (upstream `load_products` in `web_agent_site/engine/engine.py`).
///
/// Records store the fields in this order, so that the first can be read without the rest.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Product {
    /// The product's ASIN, at most ten characters.
    pub asin: String,
    /// Its name.
    pub title: String,
    /// The price as shown: `$20.0`, `$7.69 to $29.59`.
    pub price_tag: String,
    /// The department: `beauty`, `electronics`.
    pub category: String,
    /// The search query by which it was originally found, in lower case.
    pub query: String,
    /// The path of categories, separated by `›`.
    pub product_category: String,
    /// The description.
    pub description: String,
    /// The features, one text per feature.
    pub bullet_points: Vec<String>,
    /// The attributes; not shown.
    pub attributes: Vec<String>,
    /// Groups of options with their values, in lower case; a group may be empty.
    pub options: Vec<(String, Vec<String>)>,
    /// URL of the picture.
    pub image: String,
}

/// A product borrowed from a shelf.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub(super) struct ProductView<'a> {
    /// See [`Product::asin`].
    pub(super) asin: &'a str,
    /// See [`Product::title`].
    pub(super) title: &'a str,
    /// See [`Product::price_tag`].
    pub(super) price_tag: &'a str,
    /// See [`Product::category`].
    pub(super) category: &'a str,
    /// See [`Product::query`].
    pub(super) query: &'a str,
    /// See [`Product::product_category`].
    pub(super) product_category: &'a str,
    /// See [`Product::description`].
    pub(super) description: &'a str,
    /// See [`Product::bullet_points`].
    #[serde(borrow)]
    pub(super) bullet_points: Vec<&'a str>,
    /// See [`Product::attributes`].
    #[serde(borrow)]
    pub(super) attributes: Vec<&'a str>,
    /// See [`Product::options`].
    #[serde(borrow)]
    pub(super) options: Vec<(&'a str, Vec<&'a str>)>,
    /// See [`Product::image`].
    pub(super) image: &'a str,
}

impl Product {
    /// A borrowed view of the product.
    #[cfg(test)]
    pub(super) fn view(&self) -> ProductView<'_> {
        ProductView {
            asin: &self.asin,
            title: &self.title,
            price_tag: &self.price_tag,
            category: &self.category,
            query: &self.query,
            product_category: &self.product_category,
            description: &self.description,
            bullet_points: texts(&self.bullet_points),
            attributes: texts(&self.attributes),
            options: self.options.iter().map(|(name, values)| (name.as_str(), texts(values))).collect(),
            image: &self.image,
        }
    }

    /// The indexed text: title, description, first feature and options in lower case (upstream
    /// `search_engine/convert_product_file_format.py`).
    pub(super) fn indexed_text(&self) -> String {
        let options: Vec<String> =
            self.options.iter().map(|(name, values)| format!("{name}: {}", values.join(", "))).collect();
        let first = self.bullet_points.first().map_or("", String::as_str);
        format!("{} {} {first} {}", self.title, self.description, options.join(", and ")).to_lowercase()
    }
}

#[cfg(test)]
fn texts(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}
