//! The figures, tables and claims of the papers, measured: [`experiments`], on the kit
//! ([`overbank_kit`]) and with the products ([`overbank_products`]) that they are about.

pub mod experiments;
mod prelude;
