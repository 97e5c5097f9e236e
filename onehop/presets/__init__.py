"""The presets, one readable TOML file each."""
