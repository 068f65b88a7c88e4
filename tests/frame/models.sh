#!/usr/bin/env bash
# The models of models/, within their small bounds: nothing is found with all rules, and something without each of them.
# A model whose tool is missing is skipped by name; without Java and Spin the whole test is.
set -eu
exec "$HF_SOURCE_DIR/models/run" small
