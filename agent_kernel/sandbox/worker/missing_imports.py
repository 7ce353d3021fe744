"""Adds imports that models forget, as visible lines before their code. Standard library only.

A line is added only for a name that the code uses without binding it, that is missing in the user's namespace, and
whose module is installed. The name stays bound after the run, as with any import, and replaces no variable.
"""

from __future__ import annotations

import ast
import builtins
import importlib.util
import symtable
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

ALIASES = {
    "np": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "sns": "seaborn",
    "px": "plotly.express",
    "alt": "altair",
    "sm": "statsmodels.api",
    "smf": "statsmodels.formula.api",
}
MODULES = (
    "base64 calendar collections csv datetime functools glob hashlib io itertools json math operator os random re "
    "sqlite3 statistics string sys textwrap time zipfile"
)
MEMBERS = {
    "collections": "Counter OrderedDict defaultdict deque namedtuple",
    "datetime": "timedelta",
    "decimal": "Decimal",
    "fractions": "Fraction",
    "functools": "partial reduce",
    "io": "BytesIO StringIO",
    "itertools": "combinations permutations",
    "math": "ceil floor sqrt",
    "pathlib": "Path",
    "scipy": "stats",
    "scipy.stats": (
        "chi2_contingency f_oneway kendalltau kstest kurtosis levene linregress mannwhitneyu normaltest pearsonr "
        "shapiro skew spearmanr ttest_1samp ttest_ind ttest_rel wilcoxon zscore"
    ),
    "sklearn.cluster": "AgglomerativeClustering DBSCAN KMeans",
    "sklearn.compose": "ColumnTransformer make_column_transformer",
    "sklearn.datasets": "load_breast_cancer load_diabetes load_iris load_wine make_blobs make_classification",
    "sklearn.decomposition": "PCA",
    "sklearn.ensemble": (
        "GradientBoostingClassifier GradientBoostingRegressor IsolationForest RandomForestClassifier "
        "RandomForestRegressor"
    ),
    "sklearn.feature_extraction.text": "CountVectorizer TfidfVectorizer",
    "sklearn.impute": "KNNImputer SimpleImputer",
    "sklearn.linear_model": "ElasticNet Lasso LinearRegression LogisticRegression Ridge",
    "sklearn.metrics": (
        "accuracy_score classification_report confusion_matrix f1_score mean_absolute_error mean_squared_error "
        "precision_score r2_score recall_score roc_auc_score root_mean_squared_error silhouette_score"
    ),
    "sklearn.model_selection": "GridSearchCV KFold StratifiedKFold cross_val_score train_test_split",
    "sklearn.naive_bayes": "GaussianNB MultinomialNB",
    "sklearn.neighbors": "KNeighborsClassifier KNeighborsRegressor",
    "sklearn.pipeline": "Pipeline make_pipeline",
    "sklearn.preprocessing": (
        "LabelEncoder MinMaxScaler OneHotEncoder OrdinalEncoder PolynomialFeatures RobustScaler StandardScaler"
    ),
    "sklearn.svm": "SVC SVR LinearSVC",
    "sklearn.tree": "DecisionTreeClassifier DecisionTreeRegressor",
}
KNOWN: Mapping[str, str] = MappingProxyType(
    {
        **{alias: f"import {module} as {alias}" for alias, module in ALIASES.items()},
        **{module: f"import {module}" for module in MODULES.split()},
        **{name: f"from {module} import {name}" for module, names in MEMBERS.items() for name in names.split()},
    }
)
"""The import line for each name that is known to belong to a module."""
PACKAGES = ("scipy", "sklearn", "statsmodels")
"""Packages whose modules must each be imported: ``import scipy`` alone does not provide ``scipy.stats`` everywhere."""
FROM_DATETIME = "from datetime import datetime"
MEMBERS_OF_MODULE = {"datetime", "date", "time", "timedelta", "timezone", "tzinfo", "UTC", "MINYEAR", "MAXYEAR"}


def missing_imports(source: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return import lines to put before ``source``, which must be plain Python."""
    try:
        used = _unbound(symtable.symtable(source, "<agent>", "exec"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    missing = {name for name in used if name not in namespace and not hasattr(builtins, name)}
    lines = [
        FROM_DATETIME if name == "datetime" and _means_the_class(source) else line
        for name, line in KNOWN.items()
        if name in missing
    ]
    lines += [f"import {package}.{module}" for package, module in _modules_of_packages(source, missing)]
    return [line for line in lines if _is_installed(line)]


def _modules_of_packages(source: str, missing: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (package, module) for each module of PACKAGES that the code uses by its full name."""
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    used = [(node.value.id, node.attr) for node in attributes if isinstance(node.value, ast.Name)]
    for package, module in dict.fromkeys(used):
        if package in PACKAGES and package in missing:
            yield package, module


def _unbound(table: symtable.SymbolTable) -> set[str]:
    """Return the names that any scope of the code reads as globals and that the code itself does not bind."""
    top = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    return _read_as_global(table) - top


def _read_as_global(table: symtable.SymbolTable) -> set[str]:
    is_module = table.get_type() == "module"
    names = {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_referenced() and (is_module or symbol.is_global())
    }
    return names.union(*(_read_as_global(child) for child in table.get_children()))


def _means_the_class(source: str) -> bool:
    """Return True if the code uses ``datetime`` as the class (``datetime.now()``, ``datetime(2024, 1, 1)``), False if
    it uses the module (``datetime.date``)."""
    nodes = list(ast.walk(ast.parse(source)))
    attributes = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "datetime"
    }
    return not attributes & MEMBERS_OF_MODULE


def _is_installed(line: str) -> bool:
    return importlib.util.find_spec(line.split()[1].partition(".")[0]) is not None
